#include "flowgraph/parse/example_reference.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <map>
#include <optional>

#include "flowgraph/parse/example.pb.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_parser.h"
#include "support/guarded_memory.h"

namespace feedline::test {
namespace {

using flow::FeatureKind;
using flow::FeatureSpec;
using flow::RecordType;
using testing::Feature;

/// One row of a feature. Its values are kept as bytes, so that floats are compared bit by bit.
using Row = std::vector<std::string>;

struct Answer {
  std::optional<Category> category;
  int feature = -1;
  std::vector<Row> rows;
};

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

Row values_of(const Feature& feature) {
  Row row;
  for (const std::string& value : feature.bytes_list().value()) row.push_back(value);
  for (float value : feature.float_list().value()) row.push_back(raw(value));
  for (int64_t value : feature.int64_list().value()) row.push_back(raw(value));
  return row;
}

/// What a record holds: features of an Example, or of a SequenceExample.
struct Found {
  std::map<std::string, Feature> features;
  std::map<std::string, testing::FeatureList> lists;
};

/// Reads the values of `entries` whose keys are those of `features`. Other values are not read. Returns false if
/// protobuf refuses one.
template <typename Value>
bool read_entries(const testing::Entries& entries, const std::vector<FeatureSpec>& features, bool in_lists,
                  std::map<std::string, Value>& found) {
  for (const testing::Entry& entry : entries.entry()) {
    const bool wanted = std::any_of(features.begin(), features.end(), [&](const FeatureSpec& spec) {
      return spec.in_list() == in_lists && spec.key == entry.key();
    });
    if (!wanted) continue;
    Value read;
    for (const std::string& value : entry.value()) {
      google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(value.data()),
                                                static_cast<int>(value.size()));
      in.SetRecursionLimit(97);  // protobuf allows 100 levels; the three messages around it take three
      if (!read.MergeFromCodedStream(&in) || !in.ConsumedEntireMessage()) return false;
    }
    found[entry.key()] = read;
  }
  return true;
}

/// Returns what the record holds for the keys of `features`, or nothing if protobuf refuses the record.
std::optional<Found> read_frame(const std::string& record, const std::vector<FeatureSpec>& features, RecordType type) {
  Found found;
  if (type == RecordType::example) {
    testing::Frame frame;
    if (!frame.ParseFromString(record) || !read_entries(frame.features(), features, false, found.features))
      return std::nullopt;
  } else {
    testing::SequenceFrame frame;
    if (!frame.ParseFromString(record) || !read_entries(frame.context(), features, false, found.features) ||
        !read_entries(frame.feature_lists(), features, true, found.lists))
      return std::nullopt;
  }
  return found;
}

/// Returns what the record holds as protobuf's own message has it, if protobuf accepts the record.
std::optional<Found> read_strictly(const std::string& record, RecordType type) {
  Found found;
  if (type == RecordType::example) {
    testing::Example example;
    if (!example.ParseFromString(record)) return std::nullopt;
    found.features.insert(example.features().feature().begin(), example.features().feature().end());
  } else {
    testing::SequenceExample example;
    if (!example.ParseFromString(record)) return std::nullopt;
    found.features.insert(example.context().feature().begin(), example.context().feature().end());
    found.lists.insert(example.feature_lists().feature_list().begin(), example.feature_lists().feature_list().end());
  }
  return found;
}

Row defaults_of(const FeatureSpec& spec) {
  Row row;
  if (spec.kind != FeatureKind::fixed) return row;
  for (float value : spec.default_floats) row.push_back(raw(value));
  for (int64_t value : spec.default_ints) row.push_back(raw(value));
  for (const std::string& value : spec.default_bytes) row.push_back(value);
  return row;
}

std::optional<Category> wrong_type(const FeatureSpec& spec, const Feature& feature) {
  const DType dtype = feature.has_bytes_list()   ? DType::bytes
                      : feature.has_float_list() ? DType::float32
                                                 : DType::int64;
  if (dtype != spec.dtype) return Category::wrong_dtype;
  return std::nullopt;
}

std::optional<Category> wrong_length(const FeatureSpec& spec, const Row& row) {
  for (const std::string& value : row)
    if (spec.dtype == DType::bytes && spec.length >= 0 && value.size() != static_cast<size_t>(spec.length))
      return Category::wrong_length;
  return std::nullopt;
}

/// Appends the values to `row`, or returns why they are refused.
std::optional<Category> judge_values(const FeatureSpec& spec, const Feature& feature, Row& row) {
  if (const auto wrong = wrong_type(spec, feature)) return wrong;
  row = values_of(feature);
  const size_t elements = static_cast<size_t>(spec.shape.elements());
  if (spec.kind == FeatureKind::fixed && row.size() != elements) return Category::wrong_count;
  if (spec.kind == FeatureKind::fixed_sequence && row.size() % elements != 0) return Category::wrong_count;
  if (spec.max_values >= 0 && row.size() > static_cast<size_t>(spec.max_values)) return Category::wrong_count;
  return wrong_length(spec, row);
}

/// Does the same for steps. The number of values in each step comes before these values if steps may differ.
std::optional<Category> judge_steps(const FeatureSpec& spec, const testing::FeatureList& list, Row& row) {
  const auto elements = static_cast<size_t>(spec.shape.elements());
  const auto steps = static_cast<size_t>(list.feature_size());
  const size_t each = spec.kind == FeatureKind::fixed ? elements / static_cast<size_t>(spec.shape[0]) : elements;
  size_t values = 0;
  for (const Feature& step : list.feature()) {
    if (step.kind_case() != Feature::KIND_NOT_SET)
      if (const auto wrong = wrong_type(spec, step)) return wrong;
    const Row of_step = values_of(step);
    if (!spec.nested() && of_step.size() != each) return Category::wrong_count;
    if (const auto wrong = wrong_length(spec, of_step)) return wrong;
    if (spec.nested()) row.push_back(raw(of_step.size()));
    row.insert(row.end(), of_step.begin(), of_step.end());
    values += of_step.size();
  }
  if (spec.kind == FeatureKind::fixed && values != elements) return Category::wrong_count;
  if (spec.max_values >= 0 && std::max(values, spec.nested() ? steps : 0) > static_cast<size_t>(spec.max_values))
    return Category::wrong_count;
  return std::nullopt;
}

Answer judge(const std::vector<FeatureSpec>& features, const Found& found) {
  Answer answer;
  for (size_t i = 0; i < features.size(); i++) {
    const FeatureSpec& spec = features[i];
    Row row;
    std::optional<Category> wrong;
    const auto at = found.features.find(spec.key);
    const auto list = found.lists.find(spec.key);
    const bool lacks = spec.in_list() ? list == found.lists.end()
                                      : at == found.features.end() || at->second.kind_case() == Feature::KIND_NOT_SET;
    if (!lacks) {
      wrong = spec.in_list() ? judge_steps(spec, list->second, row) : judge_values(spec, at->second, row);
    } else if (spec.kind == FeatureKind::fixed ? spec.has_default : !spec.required) {
      row = defaults_of(spec);
    } else {
      wrong = Category::missing_feature;
    }
    if (wrong) {
      answer.category = wrong;
      answer.feature = static_cast<int>(i);
      return answer;
    }
    answer.rows.push_back(row);
  }
  return answer;
}

Answer ask_protobuf(const std::vector<FeatureSpec>& features, const std::string& record, RecordType type) {
  const auto found = read_frame(record, features, type);
  if (!found) return {Category::malformed_proto, -1, {}};
  return judge(features, *found);
}

Row row_of(const FeatureSpec& spec, const flow::Column& column, size_t row) {
  Row out;
  const auto add = [&](const void* values, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
      if (spec.dtype == DType::bytes) {
        const flow::BytesRef& ref = static_cast<const flow::BytesRef*>(values)[i];
        out.emplace_back(reinterpret_cast<const char*>(ref.data), ref.size);
      } else if (spec.dtype == DType::float32) {
        out.push_back(raw(static_cast<const float*>(values)[i]));
      } else {
        out.push_back(raw(static_cast<const int64_t*>(values)[i]));
      }
    }
  };
  if (spec.nested()) {
    const flow::StepsRef& ref = column.as<flow::StepsRef>()[row];
    size_t begin = 0;
    for (size_t step = 0; step < ref.steps; step++) {
      out.push_back(raw(size_t{ref.ends[step]} - begin));
      add(ref.all.values, begin, ref.ends[step]);
      begin = ref.ends[step];
    }
    if (begin != ref.all.count) out.push_back("values after the last step");
  } else if (spec.kind == FeatureKind::fixed) {
    const auto count = static_cast<size_t>(spec.shape.elements());
    add(column.as<std::byte>() + row * flow::row_bytes(spec), 0, count);
  } else {
    add(column.as<flow::ValuesRef>()[row].values, 0, column.as<flow::ValuesRef>()[row].count);
  }
  return out;
}

}  // namespace

std::string compare_with_protobuf(const std::vector<FeatureSpec>& features, std::span<const std::string> records,
                                  uint64_t* hits, RecordType type) {
  const google::protobuf::LogSilencer silencer;  // libprotobuf logs keys that are not UTF-8
  flow::PipelineSpec pipeline;
  pipeline.sources.emplace_back().record_type = type;
  pipeline.features = features;
  const flow::RecordParser parser(pipeline);
  std::vector<io::RecordView> views;
  uint64_t payload = 0;
  for (const std::string& record : records) {
    views.push_back({reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
    payload += record.size();
  }
  // Memory of this size before a page that cannot be touched, so that a write past its end ends the program.
  const GuardedMemory memory(parser.arena_bound(records.size(), payload));
  flow::Arena arena(memory.bytes());
  flow::RecordParser::Session session(parser, {static_cast<uint32_t>(records.size()), payload}, arena);
  std::vector<flow::RowError> errors;
  session.parse(views, errors);
  if (hits) *hits = session.layout_hits();
  if (arena.take<std::byte>(0) > memory.bytes().data() + memory.bytes().size()) return "the arena ran over its bound";

  auto error = errors.begin();
  for (size_t row = 0; row < records.size(); row++) {
    const Answer wanted = ask_protobuf(features, records[row], type);
    std::optional<Category> category;
    if (error != errors.end() && error->row == row) {
      category = error->category;
      if (error->message.empty()) return fmt::format("row {}: an error without a message", row);
      if (wanted.category && *wanted.category != Category::malformed_proto && error->feature != wanted.feature) {
        return fmt::format("row {}: feature {} is refused, protobuf's values refuse {}", row, error->feature,
                           wanted.feature);
      }
      ++error;
    }
    if (category != wanted.category) {
      const auto text = [](std::optional<Category> c) { return c ? std::string(name(*c)) : std::string("accepted"); };
      return fmt::format("row {}: {}, with protobuf {}", row, text(category), text(wanted.category));
    }
    if (const auto strict = read_strictly(records[row], type)) {
      const Answer whole = judge(features, *strict);
      if (whole.category != wanted.category || whole.rows != wanted.rows) {
        return fmt::format("row {}: the reference contradicts protobuf's own message", row);
      }
    }
    if (category) continue;
    for (size_t i = 0; i < features.size(); i++) {
      if (row_of(features[i], session.columns()[i], row) != wanted.rows[i]) {
        return fmt::format("row {}: other values in feature {}", row, i);
      }
    }
  }
  return error == errors.end() ? "" : "errors out of order";
}

}  // namespace feedline::test
