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

/// Somebody else's memory seen as a tensor: row-major, contiguous, valid as long as its owner. Aligned to 64 bytes;
/// bytes that a batch of one row delivers as they were stored may lie where they were read, aligned to their element.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::unset;
  Shape shape;

  size_t size_bytes() const noexcept { return static_cast<size_t>(shape.elements()) * size_of(dtype); }
  template <typename T>
  std::span<T> as() const noexcept {
    return {static_cast<T*>(data), static_cast<size_t>(shape.elements())};
  }
};

}  // namespace feedline
