#include "flowgraph/parse/example_reference.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <map>
#include <optional>

#include "flowgraph/parse/example.pb.h"

namespace feedline::test {
namespace {

using flow::FeatureKind;
using flow::FeatureSpec;
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

/// Returns what the record holds for the keys of `features`, or nothing if protobuf refuses the record. Other features
/// are not read.
std::optional<std::map<std::string, Feature>> read_frame(const std::string& record,
                                                         const std::vector<FeatureSpec>& features) {
  testing::Frame frame;
  if (!frame.ParseFromString(record)) return std::nullopt;
  std::map<std::string, Feature> found;
  for (const testing::Entry& entry : frame.features().entry()) {
    const bool wanted =
        std::any_of(features.begin(), features.end(), [&](const FeatureSpec& spec) { return spec.key == entry.key(); });
    if (!wanted) continue;
    Feature feature;
    for (const std::string& value : entry.value()) {
      google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(value.data()),
                                                static_cast<int>(value.size()));
      in.SetRecursionLimit(97);  // protobuf allows 100 levels; the three messages around it take three
      if (!feature.MergeFromCodedStream(&in) || !in.ConsumedEntireMessage()) return std::nullopt;
    }
    found[entry.key()] = feature;
  }
  return found;
}

Answer judge(const std::vector<FeatureSpec>& features, const std::map<std::string, Feature>& found) {
  Answer answer;
  for (size_t i = 0; i < features.size(); i++) {
    const FeatureSpec& spec = features[i];
    const auto refuse = [&](Category category) {
      answer.category = category;
      answer.feature = static_cast<int>(i);
      return answer;
    };
    const auto at = found.find(spec.key);
    Row row;
    if (at == found.end() || at->second.kind_case() == Feature::KIND_NOT_SET) {
      if (spec.kind == FeatureKind::fixed) {
        if (!spec.has_default) return refuse(Category::missing_feature);
        for (float value : spec.default_floats) row.push_back(raw(value));
        for (int64_t value : spec.default_ints) row.push_back(raw(value));
        for (const std::string& value : spec.default_bytes) row.push_back(value);
      }
    } else {
      const Feature& feature = at->second;
      const DType dtype = feature.has_bytes_list()   ? DType::bytes
                          : feature.has_float_list() ? DType::float32
                                                     : DType::int64;
      if (dtype != spec.dtype) return refuse(Category::wrong_dtype);
      row = values_of(feature);
      const size_t elements = static_cast<size_t>(spec.shape.elements());
      if (spec.kind == FeatureKind::fixed && row.size() != elements) return refuse(Category::wrong_count);
      if (spec.kind == FeatureKind::fixed_sequence && row.size() % elements != 0) return refuse(Category::wrong_count);
      if (spec.max_values >= 0 && row.size() > static_cast<size_t>(spec.max_values))
        return refuse(Category::wrong_count);
      for (const std::string& value : row) {
        if (dtype == DType::bytes && spec.length >= 0 && value.size() != static_cast<size_t>(spec.length)) {
          return refuse(Category::wrong_length);
        }
      }
    }
    answer.rows.push_back(row);
  }
  return answer;
}

Answer ask_protobuf(const std::vector<FeatureSpec>& features, const std::string& record) {
  const auto found = read_frame(record, features);
  if (!found) return {Category::malformed_proto, -1, {}};
  return judge(features, *found);
}

Row row_of(const FeatureSpec& spec, const flow::Column& column, size_t row) {
  const void* values;
  size_t count;
  if (spec.kind == FeatureKind::fixed) {
    count = static_cast<size_t>(spec.shape.elements());
    const size_t size = spec.dtype == DType::bytes ? sizeof(flow::BytesRef) : size_of(spec.dtype);
    values = column.as<std::byte>() + row * count * size;
  } else {
    values = column.as<flow::ValuesRef>()[row].values;
    count = column.as<flow::ValuesRef>()[row].count;
  }
  Row out;
  for (size_t i = 0; i < count; i++) {
    if (spec.dtype == DType::bytes) {
      const flow::BytesRef& ref = static_cast<const flow::BytesRef*>(values)[i];
      out.emplace_back(reinterpret_cast<const char*>(ref.data), ref.size);
    } else if (spec.dtype == DType::float32) {
      out.push_back(raw(static_cast<const float*>(values)[i]));
    } else {
      out.push_back(raw(static_cast<const int64_t*>(values)[i]));
    }
  }
  return out;
}

}  // namespace

std::string compare_with_protobuf(const std::vector<FeatureSpec>& features, std::span<const std::string> records,
                                  uint64_t* hits) {
  const google::protobuf::LogSilencer silencer;  // libprotobuf logs keys that are not UTF-8
  const flow::ExampleParser parser(features);
  std::vector<io::RecordView> views;
  uint64_t payload = 0;
  for (const std::string& record : records) {
    views.push_back({reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
    payload += record.size();
  }
  // Memory of exactly this size, so that a sanitizer sees any write past its end.
  std::vector<std::byte> memory(parser.arena_bound(records.size(), payload));
  flow::Arena arena(memory);
  flow::ExampleParser::Session session(parser, static_cast<uint32_t>(records.size()), arena);
  std::vector<flow::RowError> errors;
  session.parse(views, errors);
  if (hits) *hits = session.layout_hits();
  if (arena.take<std::byte>(0) > memory.data() + memory.size()) return "the arena ran over its bound";

  auto error = errors.begin();
  for (size_t row = 0; row < records.size(); row++) {
    const Answer wanted = ask_protobuf(features, records[row]);
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
    testing::Example strict;
    const bool strict_accepts = strict.ParseFromString(records[row]);
    if (strict_accepts) {
      const std::map<std::string, Feature> found(strict.features().feature().begin(),
                                                 strict.features().feature().end());
      const Answer whole = judge(features, found);
      if (whole.category != wanted.category || whole.rows != wanted.rows) {
        return fmt::format("row {}: the reference contradicts protobuf's own Example", row);
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
