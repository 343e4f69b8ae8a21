#include "tool/feeding/scalar_text.h"

#include <fmt/format.h>

#include <type_traits>

#include "tool/common/pipeline_text.h"
#include "unpack/dispatch.h"

namespace feedline::tool {
namespace {

std::string number_text(const TensorView& tensor, int64_t at) {
  return unpack::with_type(tensor.dtype, [&](auto type) -> std::string {
    using T = typename decltype(type)::t;
    const T value = static_cast<const T*>(tensor.data)[at];
    if constexpr (std::is_floating_point_v<T>)
      return fmt::format("{}", value);
    else if constexpr (std::is_integral_v<T>)
      return fmt::format("{}", static_cast<int64_t>(value));
    else
      return fmt::format("{}", unpack::cast<float>(value));
  });
}

std::string bytes_text(const Batch& batch, const std::string& name, int64_t row) {
  const auto offsets = batch.at(name + ".offsets").as<const int64_t>().subspan(static_cast<size_t>(row), 2);
  const auto bytes = batch.at(name + ".bytes").as<const char>();
  return text_literal({bytes.data() + offsets[0], static_cast<size_t>(offsets[1] - offsets[0])});
}

}  // namespace

std::optional<std::string> scalar_text(const Batch& batch, const ElementSpec& element, int64_t row, int64_t frames) {
  if (element.kind != ElementSpec::Kind::dense || element.shape.elements() != frames) return std::nullopt;
  if (element.dtype == DType::bytes) return bytes_text(batch, element.name, row);
  const TensorView tensor = batch.at(element.name);
  std::string text;
  for (int64_t frame = 0; frame < frames; frame++)
    text += (frame ? " " : "") + number_text(tensor, row * frames + frame);
  return text;
}

}  // namespace feedline::tool
