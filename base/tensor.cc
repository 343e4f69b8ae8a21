#include "feedline/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "feedline/error.h"

namespace feedline {
namespace {

struct Properties {
  std::string_view name;
  size_t size;
};
constexpr std::array<Properties, dtype_count> properties = {{
    {"DTYPE_UNSET", 0},
    {"BYTES", 0},
    {"BOOL", 1},
    {"UINT8", 1},
    {"INT8", 1},
    {"UINT16", 2},
    {"INT16", 2},
    {"UINT32", 4},
    {"INT32", 4},
    {"INT64", 8},
    {"FLOAT16", 2},
    {"BFLOAT16", 2},
    {"FLOAT32", 4},
    {"FLOAT64", 8},
}};

}  // namespace

std::string_view name(DType dtype) noexcept { return properties[static_cast<size_t>(dtype)].name; }

size_t size_of(DType dtype) noexcept { return properties[static_cast<size_t>(dtype)].size; }

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void refuse_element(DType dtype, size_t size) {
  throw Error(
      Category::bad_pipeline,
      fmt::format("TensorView::as<T>: the elements are {} ({} bytes each), and cannot be read as this T ({} bytes); "
                  "use a T that fits, or set a different 'dtype' for the output",
                  name(dtype), size_of(dtype), size));
}

}  // namespace feedline
