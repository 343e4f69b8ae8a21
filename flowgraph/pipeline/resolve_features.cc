#include "flowgraph/pipeline/resolve_features.h"

#include <fmt/format.h>

#include <set>

#include "feedline/error.h"
#include "flowgraph/pipeline/unsupported.h"

namespace feedline::flow {
namespace {

static_assert(static_cast<int>(DType::bytes) == config::BYTES && static_cast<int>(DType::float64) == config::FLOAT64);

constexpr int64_t longest_value = int64_t{1} << 31;
constexpr int64_t most_default_values = int64_t{1} << 22;  // they are copied for each record that lacks the feature

[[noreturn]] void refuse(const FeatureSpec& feature, const std::string& why) {
  throw Error(Category::bad_pipeline, why, {"", -1, -1, feature.name});
}

// Copies the default values into the feature after checking their dtype and length.
void read_defaults(const config::Feature& config, FeatureSpec& feature) {
  for (const config::Value& value : config.default_value()) {
    const DType found = value.has_bytes_value()     ? DType::bytes
                        : value.has_float32_value() ? DType::float32
                        : value.has_int64_value()   ? DType::int64
                                                    : DType::unset;
    if (found != feature.dtype) {
      const char* wanted = feature.dtype == DType::bytes     ? "bytes_value"
                           : feature.dtype == DType::float32 ? "float32_value"
                                                             : "int64_value";
      refuse(feature,
             fmt::format("default_value: it is not of the feature's dtype, {}; write default_value {{ {}: ... }}",
                         name(feature.dtype), wanted));
    }
    if (found == DType::bytes && feature.length >= 0 &&
        static_cast<int64_t>(value.bytes_value().size()) != feature.length)
      refuse(feature, fmt::format("default_value: it has {} bytes, but 'length' is {}; give a value of that length",
                                  value.bytes_value().size(), feature.length));
    if (found == DType::bytes) feature.default_bytes.push_back(value.bytes_value());
    if (found == DType::float32) feature.default_floats.push_back(value.float32_value());
    if (found == DType::int64) feature.default_ints.push_back(value.int64_value());
  }
  feature.has_default = config.default_value_size() > 0;
}

void resolve_defaults(const config::Feature& config, FeatureSpec& feature) {
  if (config.default_value().empty()) return;
  const int64_t given = config.default_value_size();
  if (feature.kind == FeatureKind::variable || feature.kind == FeatureKind::ragged)
    refuse(feature,
           fmt::format("default_value: a {} feature cannot have a default, because a record that lacks the feature has "
                       "no values; remove default_value",
                       config::Feature::Kind_Name(config.kind())));
  const int64_t wanted = feature.kind == FeatureKind::fixed ? feature.shape.elements() : 1;
  if (given != 1 && given != wanted)
    refuse(
        feature,
        feature.kind == FeatureKind::fixed
            ? fmt::format("default_value: {} values are given; give one value, or {} values, one for each element "
                          "of shape {}",
                          given, wanted, to_string(feature.shape))
            : fmt::format("default_value: {} values are given, but padding is a single value; give one value", given));
  if (wanted > most_default_values)
    refuse(feature, fmt::format("default_value: shape {} has more than {} elements, the most that a feature with a "
                                "default may have; remove default_value, or use a smaller shape",
                                to_string(feature.shape), most_default_values));
  read_defaults(config, feature);
  const auto count = static_cast<size_t>(wanted);
  const auto repeat = [&](auto& values) {
    if (!values.empty()) {
      const auto first = values.front();
      values.resize(count, first);
    }
  };
  repeat(feature.default_bytes);
  repeat(feature.default_floats);
  repeat(feature.default_ints);
}

// Sets in which map of a record the feature lies.
void resolve_where(const config::Feature& config, RecordType record_type, FeatureSpec& feature) {
  const bool in_list = config.where() == config::Feature::FEATURE_LIST;
  if (record_type == RecordType::sequence_example)
    feature.where = in_list ? Where::feature_list : Where::context;
  else if (in_list)
    refuse(feature,
           "where: only SequenceExamples have feature lists; write source.record_type: SEQUENCE_EXAMPLE, or remove "
           "'where'");
}

FeatureSpec resolve(const config::Feature& config, int index, int count, RecordType record_type) {
  FeatureSpec feature;
  feature.name = config.name();
  if (feature.name.empty())
    throw Error(Category::bad_pipeline, fmt::format("{}: name: it is missing; give the feature a name",
                                                    element_path("feature", index, count, "")));
  if (feature.name[0] == '@')
    refuse(feature, "name: names that begin with @ are reserved (@record @file @offset @source); choose another name");
  feature.key = config.has_key() ? config.key() : config.name();
  feature.dtype = to_dtype(config.dtype());
  if (feature.dtype == DType::unset)
    refuse(feature, "dtype: it is missing; write BYTES, FLOAT32 or INT64, as the records have it");
  if (feature.dtype != DType::bytes && feature.dtype != DType::float32 && feature.dtype != DType::int64)
    refuse(feature, fmt::format("dtype: records hold only BYTES, FLOAT32 or INT64; write one of these, and give an "
                                "output the dtype {}",
                                name(feature.dtype)));
  feature.kind = static_cast<FeatureKind>(config.kind());
  resolve_where(config, record_type, feature);

  const bool sequence = feature.kind == FeatureKind::fixed_sequence;
  if (feature.kind == FeatureKind::fixed || sequence)
    // A sequence's tensor has two axes more than its shape: rows and steps.
    feature.shape = resolve_shape(config.shape(), "shape", sequence || feature.in_list() ? 1 : 0,
                                  Shape::max_rank - (sequence ? 1 : 0));
  else if (config.shape_size() > 0)
    refuse(feature,
           fmt::format("shape: a {} feature has no shape; remove 'shape'", config::Feature::Kind_Name(config.kind())));
  if (feature.in_list() && feature.kind == FeatureKind::fixed && feature.shape.rank() == 0)
    refuse(feature,
           "shape: it is missing; give the number of steps, and then the shape of one step, or write kind: "
           "FIXED_SEQUENCE if the number of steps differs between records");

  constexpr int64_t largest_value = 16;  // bytes of a value in a column: the size of a reference to bytes
  if (feature.shape.elements() > longest_value / largest_value)
    refuse(feature, fmt::format("shape: it has {} values in each record, but at most {} are supported; write a "
                                "smaller shape",
                                feature.shape.elements(), longest_value / largest_value));
  if (config.length() < 0)
    refuse(feature, fmt::format("length: {} is negative; write 1 or more bytes, or leave it out", config.length()));
  if (config.length() > 0 && feature.dtype != DType::bytes)
    refuse(feature,
           fmt::format("length: only a feature of BYTES has a length, but this feature is {}; remove 'length', and "
                       "give the number of values by 'shape'",
                       name(feature.dtype)));
  if (config.length() > longest_value)
    refuse(feature, fmt::format("length: {} bytes is more than the largest record has, 2 GiB; write a smaller length",
                                config.length()));
  if (config.length() > 0) feature.length = config.length();

  if (config.max_values() < 0)
    refuse(feature, fmt::format("max_values: {} is negative; write 1 or more, or leave it out", config.max_values()));
  if (config.max_values() > 0 && feature.kind == FeatureKind::fixed)
    refuse(feature, "max_values: a FIXED feature has as many values as its 'shape' says; remove max_values");
  if (config.max_values() > longest_value)
    refuse(feature,
           fmt::format("max_values: {} values are more than a record of 2 GiB can have; give fewer, or leave it out",
                       config.max_values()));
  if (config.max_values() > 0) feature.max_values = config.max_values();

  if (config.required() && feature.kind == FeatureKind::fixed)
    refuse(feature,
           "required: a FIXED feature is required in every record unless it has a default_value; remove 'required'");
  feature.required = config.required();

  resolve_defaults(config, feature);
  return feature;
}

// Returns the only feature of RAW records, which is the record itself. The pipeline may declare it, to give its length.
std::vector<FeatureSpec> raw_record(const std::vector<FeatureSpec>& declared) {
  FeatureSpec record;
  record.name = record.key = "record";
  record.dtype = DType::bytes;
  for (const FeatureSpec& feature : declared) {
    if (feature.name != "record" || declared.size() > 1)
      refuse(feature,
             "a source of record_type RAW has only the feature 'record', the bytes of the record; remove the other "
             "features");
    if (feature.key != "record" || feature.dtype != DType::bytes || feature.kind != FeatureKind::fixed ||
        feature.shape.rank() > 0 || feature.has_default)
      refuse(feature,
             "with record_type RAW this feature must have the dtype BYTES, and may set only 'length'; remove the other "
             "settings");
    record.length = feature.length;
  }
  return {record};
}

}  // namespace

Shape resolve_shape(const google::protobuf::RepeatedField<int64_t>& axes, const std::string& path, int64_t least,
                    size_t most_axes) {
  constexpr int64_t most_elements = int64_t{1} << 31;
  const auto refuse_shape = [&](const std::string& why) {
    throw Error(Category::bad_pipeline, fmt::format("{}: [{}] {}", path, fmt::join(axes, ", "), why));
  };
  if (static_cast<size_t>(axes.size()) > most_axes)
    refuse_shape(fmt::format("has {} axes, but at most {} are supported", axes.size(), most_axes));
  int64_t elements = 1;
  for (int64_t axis : axes) {
    if (axis < least) refuse_shape(fmt::format("has an axis of {}; an axis must be at least {}", axis, least));
    if (axis != 0 && elements > most_elements / axis) refuse_shape("has more than 2^31 elements");
    elements *= axis;
  }
  return Shape(std::span<const int64_t>(axes.data(), static_cast<size_t>(axes.size())));
}

std::vector<FeatureSpec> resolve_features(const config::Pipeline& pipeline, RecordType record_type) {
  // Each source may name its own features, but a batch has only one set of them.
  const auto same = [](const auto& a, const auto& b) {
    if (a.size() != b.size()) return false;
    for (int i = 0; i < a.size(); i++)
      if (a[i].SerializeAsString() != b[i].SerializeAsString()) return false;
    return true;
  };
  const auto of = [&](const config::Source& source) -> const auto& {
    return source.feature().empty() ? pipeline.feature() : source.feature();
  };
  const auto& declared = of(pipeline.source(0));
  for (int i = 1; i < pipeline.source_size(); i++)
    if (!same(of(pipeline.source(i)), declared))
      throw Error(Category::bad_pipeline,
                  fmt::format("{}: feature: the features differ from those of source[0], which is not supported yet; "
                              "give all sources the same features, best outside of 'source'",
                              element_path("source", i, pipeline.source_size(), pipeline.source(i).name())));

  std::vector<FeatureSpec> features;
  std::set<std::string> names, keys;
  for (int i = 0; i < declared.size(); i++) {
    try {
      features.push_back(resolve(declared[i], i, declared.size(), record_type));
    } catch (const Error& error) {
      throw error.at({"", -1, -1, declared[i].name()});
    }
    const FeatureSpec& feature = features.back();
    if (!names.insert(feature.name).second)
      refuse(feature, "name: another feature has this name; give each feature a name of its own");
    if (!keys.insert(feature.place()).second)
      refuse(feature,
             fmt::format("key: another feature already reads '{}'; remove one of the two features; several outputs can "
                         "be made from one feature",
                         feature.key));
  }
  if (record_type == RecordType::raw) return raw_record(features);
  if (features.empty())
    throw Error(Category::bad_pipeline,
                "feature: it is missing; name what to read from each record: feature { name: \"...\" dtype: ... }");
  return features;
}

}  // namespace feedline::flow
