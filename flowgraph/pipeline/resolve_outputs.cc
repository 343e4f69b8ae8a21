#include "flowgraph/pipeline/resolve_outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "feedline/error.h"
#include "flowgraph/pipeline/elements.h"
#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/pipeline/resolve_features.h"
#include "flowgraph/pipeline/resolve_formulas.h"
#include "flowgraph/pipeline/unsupported.h"

namespace feedline::flow {
namespace {

using config::Output;

// All kinds of outputs except one: an output whose kind is not listed here passes a feature through.
constexpr struct {
  Output::FromCase from;
  void (*resolve)(OutputResolver& of);
} kinds[] = {
    {Output::kExpression, resolve_expression},
    {Output::kStack, resolve_stack},
    {Output::kUnpackBits, resolve_bits},
    {Output::kDecodeRaw, resolve_raw},
    {Output::kDecodeImage, resolve_encoded},
    {Output::kOneHot, resolve_one_hot},
    {Output::kLookup, resolve_lookup},
    {Output::kVocabulary, resolve_vocabulary},
    {Output::kHash, resolve_hash},
};

OutputSpec resolve_output(OutputResolver of) {
  if (of.config.from_case() != Output::kDecodeImage && of.config.from_case() != Output::kDecodeRaw)
    for (const auto& [field, given] : of.shaping())
      if (given) of.refuse(field, "it is only for pictures of decode_image and decode_raw; remove it");
  const auto* const kind = std::ranges::find(kinds, of.config.from_case(), [](const auto& one) { return one.from; });
  (kind == std::end(kinds) ? resolve_feature : kind->resolve)(of);
  return std::move(of.output);
}

// Sets the length of bytes features that a decode_raw reads, because its dtype and shape determine the length.
void take_lengths(const google::protobuf::RepeatedPtrField<Output>& outputs, const FeatureNumbers& numbers,
                  std::vector<FeatureSpec>& features) {
  for (const Output& output : outputs) {
    const auto known = output.has_decode_raw() ? numbers.find(output.feature()) : numbers.end();
    if (known == numbers.end()) continue;
    FeatureSpec& feature = features[static_cast<size_t>(known->second)];
    if (feature.dtype != DType::bytes || feature.length >= 0) continue;
    const Shape shape =
        resolve_shape(output.decode_raw().shape(), fmt::format("output '{}': decode_raw.shape", output.name()), 1);
    feature.length = shape.elements() * static_cast<int64_t>(size_of(stored_dtype(output.decode_raw())));
    feature.length_of = output.name();
    for (const std::string& value : feature.default_bytes)
      if (static_cast<int64_t>(value.size()) != feature.length)
        throw Error(Category::bad_pipeline,
                    fmt::format("default_value: it has {} bytes, but output '{}' decodes {} bytes; give a value of "
                                "that length",
                                value.size(), output.name(), feature.length),
                    {"", -1, -1, feature.name});
  }
}

void check_names(const PipelineSpec& spec) {
  std::set<std::string> outputs, tensors;
  for (const OutputSpec& output : spec.outputs) {
    if (!outputs.insert(output.name).second)
      throw Error(Category::bad_pipeline,
                  fmt::format("output '{}': name: another output has this name; give each output a name of its own",
                              output.name));
    if (output.internal) continue;
    for (const std::string& tensor : element_of(spec, output).tensors())
      if (!tensors.insert(tensor).second)
        throw Error(
            Category::bad_pipeline,
            fmt::format("output '{}': name: another output has a tensor with the name '{}', too; rename one of the two "
                        "outputs",
                        output.name, tensor));
  }
  if (tensors.empty())
    throw Error(Category::bad_pipeline,
                "output: all outputs are internal, so nothing would be delivered; remove 'internal' from one output");
  if (!spec.valid_mask.empty() && (outputs.contains(spec.valid_mask) || tensors.contains(spec.valid_mask)))
    throw Error(Category::bad_pipeline,
                fmt::format("batch.valid_mask: there is an output '{}' already; choose another name for the mask",
                            spec.valid_mask));
}

void warn_of_unused_features(PipelineSpec& spec) {
  std::vector<bool> used(spec.features.size());
  const auto use = [&](int feature) {
    if (feature >= 0) used[static_cast<size_t>(feature)] = true;
  };
  const auto use_all_of = [&](const PipelineSpec& feed) {
    for (const OutputSpec& output : feed.outputs) {
      use(output.feature);
      for (const DenseJob& job : output.jobs)
        if (job.column.kind != ColumnRef::Kind::expression) use(job.column.number);
    }
    for (const ExpressionSpec& expression : feed.expressions)
      for (const ExpressionSpec::Input& input : expression.inputs) use(input.feature);
  };
  use_all_of(spec);
  if (spec.filter) use_all_of(*spec.filter);
  std::vector<std::string> unused;
  for (size_t i = 0; i < used.size(); i++)
    if (!used[i]) unused.push_back("'" + spec.features[i].name + "'");
  if (!unused.empty())
    spec.warnings.push_back(
        fmt::format("feature {0}: read and checked in every record, but no output is made from "
                    "{1}; remove {1} if the check is not needed",
                    fmt::join(unused, ", "), unused.size() == 1 ? "it" : "them"));
}

}  // namespace

void resolve_outputs(const config::Pipeline& pipeline, const std::string& folder, PipelineSpec& spec) {
  google::protobuf::RepeatedPtrField<Output> outputs = pipeline.output();
  if (outputs.empty()) {
    for (const FeatureSpec& feature : spec.features) {
      outputs.Add()->set_name(feature.name);
      outputs.rbegin()->set_feature(feature.name);
    }
  }
  FeatureNumbers numbers;
  for (size_t i = 0; i < spec.features.size(); i++) numbers[spec.features[i].name] = static_cast<int>(i);
  take_lengths(outputs, numbers, spec.features);
  for (int i = 0; i < outputs.size(); i++) {
    if (outputs[i].name().empty())
      throw Error(Category::bad_pipeline, fmt::format("{}: name: it is missing; give the output a name",
                                                      element_path("output", i, outputs.size(), "")));
    spec.outputs.push_back(resolve_output(
        {outputs[i], fmt::format("output '{}'", outputs[i].name()), pipeline.seed(), folder, numbers, spec}));
  }
  check_names(spec);
  resolve_formulas(outputs, spec);
  warn_of_unused_features(spec);
}

}  // namespace feedline::flow
