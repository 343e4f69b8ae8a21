#include "flowgraph/pipeline/output_resolver.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/did_you_mean.h"
#include "flowgraph/pipeline/resolve_features.h"
#include "flowgraph/table/table.h"
#include "io/read/source.h"

namespace feedline::flow {

OutputResolver::OutputResolver(const config::Output& output_config, std::string of_output, uint64_t pipeline_seed,
                               const std::string& pipeline_folder, const FeatureNumbers& feature_numbers,
                               PipelineSpec& spec)
    : config(output_config),
      path(std::move(of_output)),
      seed(pipeline_seed),
      folder(pipeline_folder),
      features(spec.features),
      numbers(feature_numbers),
      tables(spec.tables),
      cache(spec.cache),
      warnings(spec.warnings) {
  output.name = config.name();
  output.dtype = to_dtype(config.dtype());
  output.internal = config.internal();
}

void OutputResolver::refuse(std::string_view field, const std::string& why) const {
  throw Error(Category::bad_pipeline, fmt::format("{}: {}: {}", path, field, why));
}

void OutputResolver::nothing_but(std::string_view what) const {
  if (!config.feature().empty())
    refuse("feature", fmt::format("an output is made either from 'feature' or by '{}'; remove one of the two", what));
}

int OutputResolver::feature_number(std::string_view field, const std::string& wanted) const {
  if (const auto known = numbers.find(wanted); known != numbers.end()) return known->second;
  std::vector<std::string> names;
  for (const FeatureSpec& feature : features) names.push_back(feature.name);
  refuse(field, fmt::format("there is no feature '{}'{} The features are: {}", wanted,
                            nearest(wanted, names).empty() ? "." : did_you_mean(wanted, names), fmt::join(names, " ")));
}

int OutputResolver::bytes_feature(std::string_view operation) const {
  if (config.feature().empty()) refuse("feature", fmt::format("{} needs a feature of BYTES; name one", operation));
  const int number = feature_number("feature", config.feature());
  const FeatureSpec& from = feature(number);
  if (from.dtype != DType::bytes || from.kind != FeatureKind::fixed || from.shape.rank() > 0)
    refuse(operation,
           fmt::format("it needs one BYTES value in each record; feature '{}' is {}", from.name, describe(from)));
  return number;
}

int OutputResolver::names_feature(std::string_view operation) const {
  if (config.feature().empty())
    refuse("feature", fmt::format("{} needs a feature of BYTES or INT64; name one", operation));
  const int number = feature_number("feature", config.feature());
  const FeatureSpec& from = feature(number);
  if (from.dtype == DType::float32 || from.kind != FeatureKind::fixed)
    refuse(operation,
           fmt::format("it needs a feature of BYTES or INT64 that is FIXED, so that every record has as many "
                       "values; feature '{}' is {}",
                       from.name, describe(from)));
  return number;
}

Shape OutputResolver::shape_of_each(const FeatureSpec& from, const Shape& each) const {
  constexpr int64_t most_elements = int64_t{1} << 31;
  std::vector<int64_t> axes(from.shape.begin(), from.shape.end());
  axes.insert(axes.end(), each.begin(), each.end());
  if (axes.size() > Shape::max_rank)
    refuse("feature",
           fmt::format(
               "'{}' has a shape of {} axes ({}), and each of its values makes {} more ({}), but an output has at "
               "most {} axes; give the feature a shape of fewer axes",
               from.name, from.shape.rank(), to_string(from.shape), each.rank(), to_string(each), Shape::max_rank));
  if (each.elements() > most_elements / std::max<int64_t>(1, from.shape.elements()))
    refuse("feature",
           fmt::format("each of the {} values of '{}' makes {} elements, more than 2^31 elements in a row; give "
                       "the feature a smaller shape",
                       from.shape.elements(), from.name, each.elements()));
  return Shape(axes);
}

void OutputResolver::refuse_all_but_numbers(std::string_view what) const {
  if (config.has_normalize()) refuse("normalize", fmt::format("{} only stand for something; remove 'normalize'", what));
  if (config.layout() != config::Output::AS_IS)
    refuse("layout", fmt::format("{} have no layout; remove 'layout'", what));
  if (output.dtype != DType::unset && output.dtype != DType::int64 && output.dtype != DType::int32)
    refuse("dtype", fmt::format("it is {}, but {} are INT64 or INT32; write one of the two", name(output.dtype), what));
}

std::string OutputResolver::file_name(std::string_view field, const std::string& named) const {
  if (named.find('\0') != std::string::npos) refuse(field, "it is not a file name, because it has a NUL character");
  if (named.empty()) return named;
  return io::absolute_name(folder, named);
}

size_t OutputResolver::table(std::string_view field, const TableSpec& said) {
  const auto says_the_same = [&](TableSpec known) {
    known.dtype = DType::unset;
    known.row_shape = {};
    known.rows = 0;
    return known == said;
  };
  const auto known = std::ranges::find_if(tables, says_the_same);
  if (known != tables.end()) return static_cast<size_t>(known - tables.begin());
  try {
    tables.push_back(Table(said).spec());
    return tables.size() - 1;
  } catch (const Error& error) {
    throw Error(error.category(), fmt::format("{}: {}: {}", path, field, error.message()), error.place());
  }
}

void OutputResolver::add_job(const ColumnRef& column, unpack::UnpackSpec unpack, size_t values) {
  if (values == 0) refuse("feature", "the feature's shape has no elements; correct the shape of the feature");
  output.jobs.push_back({.column = column, .unpack = std::move(unpack), .values = values});
}

int OutputResolver::turn(unpack::UnpackSpec& unpack, ImageLayout stored, ImageLayout otherwise) const {
  ImageLayout wanted = layout_of(config.layout());
  if (wanted == ImageLayout::unknown) wanted = otherwise;
  if (wanted != ImageLayout::unknown && unpack.shape.rank() != 3)
    refuse("layout", fmt::format("it needs a shape of 3 axes, not {}", to_string(unpack.shape)));
  if (wanted != ImageLayout::unknown && stored == ImageLayout::unknown)
    refuse("layout",
           "the order of the stored axes is not known; with decode_raw, write decode_raw.layout; otherwise remove "
           "'layout' to deliver the axes as they are stored");
  if (stored == ImageLayout::unknown) return -1;
  if (wanted != ImageLayout::unknown && wanted != stored) {
    const std::vector<size_t> axes =
        wanted == ImageLayout::chw ? std::vector<size_t>{2, 0, 1} : std::vector<size_t>{1, 2, 0};
    const Shape shape = unpack.shape;
    const std::vector<int64_t> strides = unpack.stride_bits;
    for (size_t i = 0; i < 3; i++) {
      unpack.shape[i] = shape[axes[i]];
      unpack.stride_bits[i] = strides[axes[i]];
    }
  }
  return (wanted == ImageLayout::unknown ? stored : wanted) == ImageLayout::chw ? 0 : 2;
}

void OutputResolver::finish(unpack::UnpackSpec& unpack, int channel_axis, DType natural) {
  if (config.has_normalize()) {
    const config::Normalize& given = config.normalize();
    unpack::Normalize normalize;
    if (given.has_scale())
      normalize.scale = channel_values("normalize.scale", std::array{given.scale()}, unpack.shape, channel_axis)[0];
    normalize.mean = channel_values("normalize.mean", given.mean(), unpack.shape, channel_axis);
    normalize.std = channel_values("normalize.std", given.std(), unpack.shape, channel_axis);
    for (float std : normalize.std)
      if (!(std > 0)) refuse("normalize.std", fmt::format("{}; it must be above 0", std));
    unpack.normalize = std::move(normalize);
    natural = DType::float32;
  }
  const bool by_channel = !unpack.channel_bits.empty() || unpack.scale.size() > 1 || unpack.bias.size() > 1 ||
                          (unpack.normalize && (unpack.normalize->mean.size() > 1 || unpack.normalize->std.size() > 1));
  unpack.channel_axis = by_channel ? channel_axis : -1;
  if (output.dtype == DType::unset) output.dtype = natural;
  if (output.dtype == DType::bytes)
    refuse("dtype", "BYTES cannot be made from numbers; write a type of numbers, such as FLOAT32");
  unpack.out = output.dtype;
}

void OutputResolver::from_numbers(const ColumnRef& column, DType stored, const Shape& shape, size_t values) {
  unpack::UnpackSpec unpack = stored_elements(stored, shape);
  const int channel_axis = turn(unpack, ImageLayout::unknown);
  finish(unpack, channel_axis, stored);
  output.shape = unpack.shape;
  add_job(column, std::move(unpack), values);
}

std::string describe(const FeatureSpec& feature) {
  constexpr const char* kinds[] = {"FIXED", "VARIABLE", "FIXED_SEQUENCE", "RAGGED"};
  std::string text = fmt::format("{} {}", kinds[static_cast<int>(feature.kind)], name(feature.dtype));
  if (feature.shape.rank() > 0) text += fmt::format(" {}", to_string(feature.shape));
  return text;
}

ImageLayout layout_of(config::Output::Layout layout) {
  return layout == config::Output::HWC   ? ImageLayout::hwc
         : layout == config::Output::CHW ? ImageLayout::chw
                                         : ImageLayout::unknown;
}

DType stored_dtype(const config::DecodeRaw& raw) {
  return raw.stored() == config::DTYPE_UNSET ? DType::uint8 : to_dtype(raw.stored());
}

}  // namespace feedline::flow
