#include "flowgraph/pipeline/elements.h"

#include <span>

#include "unpack/unpack.h"

namespace feedline {

std::vector<std::string> ElementSpec::tensors() const {
  std::vector<std::string> names;
  if (dtype == DType::bytes)
    names = {name + ".bytes", name + ".offsets"};
  else
    names = {kind == Kind::dense || kind == Kind::padded ? name : name + ".values"};
  if (kind == Kind::nested) names.push_back(name + ".step_splits");
  if (kind == Kind::nested || kind == Kind::ragged) names.push_back(name + ".row_splits");
  return names;
}

namespace flow {
namespace {

/// Returns the feature's padding value, as this output delivers it.
std::vector<std::byte> padding_of(const FeatureSpec& feature, const OutputSpec& output) {
  if (output.steps) return std::vector<std::byte>(size_of(output.dtype));
  if (feature.dtype == DType::bytes) {
    if (feature.default_bytes.empty()) return {};
    const auto value = std::as_bytes(std::span(feature.default_bytes.front()));
    return {value.begin(), value.end()};
  }
  const int64_t pad_int = feature.default_ints.empty() ? 0 : feature.default_ints.front();
  const float pad_float = feature.default_floats.empty() ? 0.0f : feature.default_floats.front();
  const auto* value = feature.dtype == DType::int64 ? reinterpret_cast<const std::byte*>(&pad_int)
                                                    : reinterpret_cast<const std::byte*>(&pad_float);
  std::vector<std::byte> padding(size_of(output.dtype));
  unpack::Unpacker (*output.unpack_value)(std::span(&value, 1), padding.data());
  return padding;
}

}  // namespace

ElementSpec element_of(const PipelineSpec& spec, const OutputSpec& output) {
  ElementSpec element{.name = output.name, .dtype = output.dtype, .shape = output.shape};
  if (output.padded) {
    element.kind = ElementSpec::Kind::padded;
    element.padding = padding_of(spec.features[static_cast<size_t>(output.feature)], output);
  } else if (output.variable) {
    const bool nested = spec.features[static_cast<size_t>(output.feature)].nested();
    element.kind = nested ? ElementSpec::Kind::nested : ElementSpec::Kind::ragged;
  } else if (spec.window) {
    element.shape = output.shape.with_rows(spec.window->size);
  }
  return element;
}

std::vector<ElementSpec> elements_of(const PipelineSpec& spec) {
  std::vector<ElementSpec> elements;
  for (const OutputSpec& output : spec.outputs)
    if (!output.internal) elements.push_back(element_of(spec, output));
  if (!spec.valid_mask.empty()) {
    ElementSpec& mask = elements.emplace_back(ElementSpec{.name = spec.valid_mask, .dtype = DType::boolean});
    if (spec.window) mask.shape = Shape().with_rows(spec.window->size);
  }
  return elements;
}

}  // namespace flow
}  // namespace feedline
