// What a tensor is: element type, shape, memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "feedline/export.h"

namespace feedline {

/// Element types, numbered as in pipeline.proto. BYTES is a string of bytes of any length.
enum class DType : uint8_t {
  unset,
  bytes,
  boolean,  // one byte, 0 or 1
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  int64,
  float16,   // IEEE 754 binary16
  bfloat16,  // the upper half of a binary32
  float32,
  float64,
};
inline constexpr int dtype_count = 14;

/// As in pipeline.proto: "FLOAT32".
FEEDLINE_PUBLIC std::string_view name(DType dtype) noexcept;

/// Bytes of an element; 0 for unset and bytes.
FEEDLINE_PUBLIC size_t size_of(DType dtype) noexcept;

/// Lengths of axes, outermost first; up to 8 of them. No axes: a scalar, one element.
class Shape {
 public:
  static constexpr size_t max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> axes) : Shape(std::span(axes.begin(), axes.size())) {}
  /// Precondition: at most max_rank axes.
  explicit Shape(std::span<const int64_t> axes) : rank_(axes.size()) {
    for (size_t i = 0; i < rank_; i++) axes_[i] = axes[i];
  }

  size_t rank() const noexcept { return rank_; }
  int64_t operator[](size_t axis) const noexcept { return axes_[axis]; }
  int64_t& operator[](size_t axis) noexcept { return axes_[axis]; }
  const int64_t* begin() const noexcept { return axes_.data(); }
  const int64_t* end() const noexcept { return axes_.data() + rank_; }
  int64_t elements() const noexcept {
    int64_t n = 1;
    for (int64_t axis : *this) n *= axis;
    return n;
  }
  /// This shape with another axis in front.
  Shape with_rows(int64_t rows) const {
    Shape shape;
    shape.axes_[shape.rank_++] = rows;
    for (int64_t axis : *this) shape.axes_[shape.rank_++] = axis;
    return shape;
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, max_rank + 2> axes_{};  // two more: the rows, and the longest sequence of a batch
  size_t rank_ = 0;
};

/// As people write it: "[512, 8, 8, 24]".
FEEDLINE_PUBLIC std::string to_string(const Shape& shape);

/// Whether elements of this dtype can be read as values of type T: of the same size and kind, integers with the same
/// sign. Any dtype of one byte can be read as uint8_t, char or std::byte, too; FLOAT16 and BFLOAT16 as any type of two
/// bytes, such as uint16_t or a program's own half-precision class.
template <typename T>
constexpr bool is_element(DType dtype) noexcept {
  using Value = std::remove_cv_t<T>;
  constexpr size_t size = sizeof(Value);
  constexpr bool is_bool = std::is_same_v<Value, bool>;
  constexpr bool is_byte = size == 1 && !is_bool && !std::is_same_v<Value, signed char>;
  constexpr bool is_signed = std::is_integral_v<Value> && std::is_signed_v<Value>;
  constexpr bool is_unsigned = std::is_integral_v<Value> && std::is_unsigned_v<Value>;
  switch (dtype) {
    case DType::unset:
    case DType::bytes:
      return false;
    case DType::boolean:
      return is_bool || is_byte;
    case DType::uint8:
      return is_byte;
    case DType::int8:
      return size == 1 && !is_bool;
    case DType::uint16:
      return is_unsigned && size == 2;
    case DType::int16:
      return is_signed && size == 2;
    case DType::uint32:
      return is_unsigned && size == 4;
    case DType::int32:
      return is_signed && size == 4;
    case DType::int64:
      return is_signed && size == 8;
    case DType::float16:
    case DType::bfloat16:
      return size == 2;
    case DType::float32:
      return std::is_floating_point_v<Value> && size == 4;
    case DType::float64:
      return std::is_floating_point_v<Value> && size == 8;
  }
  return false;
}

/// Throws the Error bad_pipeline of TensorView::as() for a T of `size` bytes.
[[noreturn]] FEEDLINE_PUBLIC void refuse_element(DType dtype, size_t size);

/// Somebody else's memory seen as a tensor: row-major, contiguous, valid as long as its owner. Aligned to 64 bytes;
/// bytes that a batch of one row delivers as they were stored may lie where they were read, aligned to their element.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::unset;
  Shape shape;

  size_t size_bytes() const noexcept { return static_cast<size_t>(shape.elements()) * size_of(dtype); }
  /// The elements, in row-major order. Throws Error bad_pipeline where they are no T: see is_element().
  template <typename T>
  std::span<T> as() const {
    if (!is_element<T>(dtype)) refuse_element(dtype, sizeof(T));
    return {static_cast<T*>(data), static_cast<size_t>(shape.elements())};
  }
};

}  // namespace feedline
