// Tensors: element types (DType), shapes (Shape), and tensors in memory (TensorView).
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

/// The type of a tensor's elements. The numbers are those of DType in pipeline.proto.
enum class DType : uint8_t {
  unset,
  bytes,    // strings of bytes of any length
  boolean,  // one byte, 0 or 1
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  int64,
  float16,   // IEEE 754 binary16
  bfloat16,  // the upper 16 bits of an IEEE 754 binary32
  float32,
  float64,
};
inline constexpr int dtype_count = 14;

/// Returns the name that pipeline.proto has for `dtype`: "FLOAT32". For `unset` it returns "DTYPE_UNSET".
FEEDLINE_PUBLIC std::string_view name(DType dtype) noexcept;

/// Returns the size of an element in bytes, or 0 for `unset` and `bytes`.
FEEDLINE_PUBLIC size_t size_of(DType dtype) noexcept;

/// The lengths of a tensor's axes, outermost first. A shape without axes is that of a scalar, which has one element.
class Shape {
 public:
  /// The largest number of axes with which a Shape can be made. with_rows() may add two more.
  static constexpr size_t max_rank = 8;

  /// Makes the shape of a scalar.
  Shape() = default;
  /// Precondition: at most max_rank axes.
  Shape(std::initializer_list<int64_t> axes) : Shape(std::span(axes.begin(), axes.size())) {}
  /// Precondition: at most max_rank axes.
  explicit Shape(std::span<const int64_t> axes) : rank_(axes.size()) {
    for (size_t i = 0; i < rank_; i++) axes_[i] = axes[i];
  }

  /// Returns the number of axes.
  size_t rank() const noexcept { return rank_; }
  /// Returns the length of an axis. Precondition: axis < rank().
  int64_t operator[](size_t axis) const noexcept { return axes_[axis]; }
  int64_t& operator[](size_t axis) noexcept { return axes_[axis]; }
  const int64_t* begin() const noexcept { return axes_.data(); }
  const int64_t* end() const noexcept { return axes_.data() + rank_; }
  /// Returns the number of elements, the product of the lengths.
  int64_t elements() const noexcept {
    int64_t n = 1;
    for (int64_t axis : *this) n *= axis;
    return n;
  }
  /// Returns this shape with one more axis, of length `rows`, in front. Precondition: rank() < max_rank + 2.
  Shape with_rows(int64_t rows) const {
    Shape shape;
    shape.axes_[shape.rank_++] = rows;
    for (int64_t axis : *this) shape.axes_[shape.rank_++] = axis;
    return shape;
  }
  bool operator==(const Shape&) const = default;

 private:
  // There is room for two more axes: the rows of a batch, and the longest sequence in a batch.
  std::array<int64_t, max_rank + 2> axes_{};
  size_t rank_ = 0;
};

/// Returns the shape for people: "[512, 8, 8, 24]".
FEEDLINE_PUBLIC std::string to_string(const Shape& shape);

/// Returns whether elements of type `dtype` can be read as values of type T. T must have the same size and kind (and,
/// for integers, the same signedness). In addition:
/// * Every dtype of one byte can be read as uint8_t, char or std::byte.
/// * FLOAT16 and BFLOAT16 can be read as any type of two bytes, such as uint16_t or a program's own half-precision
///   class.
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

/// Throws the Error bad_pipeline of TensorView::as(), for a type T of `size` bytes that does not fit `dtype`.
[[noreturn]] FEEDLINE_PUBLIC void refuse_element(DType dtype, size_t size);

/// A view of a row-major, contiguous tensor. It does not own the tensor's memory, and is valid as long as the owner,
/// for instance a batch, keeps the memory.
///
/// `data` is aligned to 64 bytes, with one exception. If values need no conversion, a batch of one row may leave them
/// in the memory into which the file was read. Such values are aligned only to their element size.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::unset;
  Shape shape;

  /// Returns the size of the tensor in bytes, without padding.
  size_t size_bytes() const noexcept { return static_cast<size_t>(shape.elements()) * size_of(dtype); }
  /// Returns the elements in row-major order. Throws Error bad_pipeline if they cannot be read as T (see is_element()).
  /// If `data` lies on a GPU, so do the elements.
  template <typename T>
  std::span<T> as() const {
    if (!is_element<T>(dtype)) refuse_element(dtype, sizeof(T));
    return {static_cast<T*>(data), static_cast<size_t>(shape.elements())};
  }
};

}  // namespace feedline
