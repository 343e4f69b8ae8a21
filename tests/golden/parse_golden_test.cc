// Compares the parsers with TensorFlow's answers: every golden case that parses Examples or SequenceExamples.
//
// If TensorFlow and protobuf differ, README.md decides ("What feedline does where they differ"). `rules` names the
// sentence that applies to each such case. Every record also gets libprotobuf's answer (compare_with_protobuf).
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "feedline/records.h"
#include "flowgraph/parse/example_reference.h"
#include "flowgraph/parse/record_parser.h"
#include "io/records/crc32c.h"
#include "manifest.h"
#include "support/catch.h"

namespace feedline::test {
namespace {

using flow::BytesRef;
using flow::FeatureKind;
using flow::FeatureSpec;
using flow::RecordType;
using flow::StepsRef;
using flow::ValuesRef;

enum class Rule {
  format,     // "The format's own definition decides": the values of protobuf's C++ parser
  entries,    // the same, but protobuf_arrays (Python's) sets map entries with unknown fields aside; C++ keeps them
  keys,       // "Keys are bytes": like TensorFlow
  foreign,    // "the inside of features nobody asked for need not be looked at": like TensorFlow
  rejected,   // "what protobuf rejects in a requested feature, or around it, is malformed_proto"
  last_kind,  // "a requested feature whose last kind is another one is wrong_dtype"
};

const std::map<std::string, Rule> rules = [] {
  std::map<std::string, Rule> all;
  const auto add = [&](Rule rule, std::initializer_list<const char*> names) {
    for (const char* name : names) all.emplace(std::string("proto/") + name, rule);
  };
  add(Rule::format, {"int64_two_packed_chunks",
                     "int64_packed_then_unpacked",
                     "int64_unpacked_then_packed",
                     "int64_list_twice",
                     "int64_list_twice_unpacked",
                     "float_two_packed_chunks",
                     "float_packed_then_unpacked",
                     "float_unpacked_then_packed",
                     "float_list_twice",
                     "float_list_twice_unpacked",
                     "bytes_list_twice",
                     "duplicate_key_last_unset",
                     "two_kinds_wanted_last",
                     "three_kinds",
                     "kind_twice_between",
                     "entry_without_value",
                     "entry_without_value_var",
                     "entry_without_key",
                     "entry_empty",
                     "entry_key_twice",
                     "entry_value_twice",
                     "entry_key_value_key",
                     "unknown_group_example_before",
                     "unknown_group_example_after",
                     "unknown_varint_features_before",
                     "unknown_varint_features_after",
                     "unknown_fixed64_features_before",
                     "unknown_fixed64_features_after",
                     "unknown_bytes_features_before",
                     "unknown_bytes_features_after",
                     "unknown_fixed32_features_before",
                     "unknown_fixed32_features_after",
                     "unknown_group_features_before",
                     "unknown_group_features_after",
                     "unknown_varint_feature_before",
                     "unknown_fixed64_feature_before",
                     "unknown_bytes_feature_before",
                     "unknown_fixed32_feature_before",
                     "unknown_group_feature_before",
                     "unknown_varint_list_before",
                     "unknown_fixed64_list_before",
                     "unknown_bytes_list_before",
                     "unknown_fixed32_list_before",
                     "unknown_group_list_before",
                     "known_number_wrong_type_features",
                     "known_number_wrong_type_feature",
                     "group_deep_90",
                     "tag_padded_example",
                     "tag_padded_features",
                     "tag_padded_feature",
                     "tag_padded_list",
                     "tag_padded_list_unpacked",
                     "wrong_list_wire_type_int64",
                     "wrong_list_wire_type_float",
                     "wrong_list_wire_type_float_varint",
                     "wrong_list_wire_type_bytes",
                     "list_kind_not_delimited"});
  add(Rule::entries, {"unknown_varint_entry_before", "unknown_varint_entry_after", "unknown_fixed64_entry_before",
                      "unknown_fixed64_entry_after", "unknown_bytes_entry_before", "unknown_bytes_entry_after",
                      "unknown_fixed32_entry_before", "unknown_fixed32_entry_after", "unknown_group_entry_before",
                      "unknown_group_entry_after"});
  add(Rule::keys, {"keys_not_utf8", "keys_not_utf8_foreign"});
  add(Rule::foreign, {"varint_11_bytes_foreign", "inner_length_too_long_foreign"});
  add(Rule::rejected, {"unknown_end_group_feature_after", "unknown_type6_feature_after", "unknown_end_group_list_after",
                       "unknown_type6_list_after", "field_zero_example", "field_zero_feature", "packed_float_odd",
                       "inner_length_too_long"});
  add(Rule::last_kind, {"two_kinds_wanted_first"});
  return all;
}();

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

FeatureSpec spec_of(const GoldenFeature& golden) {
  FeatureSpec spec;
  spec.name = spec.key = golden.name;
  spec.dtype = golden.dtype == "bytes" ? DType::bytes : golden.dtype == "float32" ? DType::float32 : DType::int64;
  spec.kind = golden.kind == "fixed"            ? FeatureKind::fixed
              : golden.kind == "fixed_sequence" ? FeatureKind::fixed_sequence
              : golden.kind == "ragged"         ? FeatureKind::ragged
                                                : FeatureKind::variable;
  spec.shape = Shape(std::span(golden.shape));
  if (golden.where == "context") spec.where = flow::Where::context;
  if (golden.where == "feature_list") {
    spec.where = flow::Where::feature_list;
    spec.required = spec.kind == FeatureKind::fixed_sequence && !golden.allow_missing;
  }
  if (golden.default_value.is_null()) return spec;
  spec.has_default = true;
  for (const nlohmann::json& value : golden.default_value) {
    if (spec.dtype == DType::bytes) spec.default_bytes.push_back(from_hex(value.get<std::string>()));
    if (spec.dtype == DType::float32) spec.default_floats.push_back(value.get<float>());
    if (spec.dtype == DType::int64) spec.default_ints.push_back(value.get<int64_t>());
  }
  return spec;
}

std::vector<std::string> read_records(const GoldenCase& golden) {
  std::vector<std::string> records;
  for (const std::string& file : golden.files) {
    const Compression compression = golden.compression == "GZIP"   ? Compression::gzip
                                    : golden.compression == "ZLIB" ? Compression::zlib
                                                                   : Compression::none;
    RecordReader reader(file, {.compression = compression});
    Record record;
    while (true) {
      const ReadResult result = reader.next(record);
      if (result == ReadResult::end) break;
      REQUIRE(result == ReadResult::record);
      records.emplace_back(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
    }
  }
  return records;
}

/// An array as the manifest describes it.
struct Array {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Arrays = std::map<std::string, Array>;

template <typename T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// All values of some rows of a feature, concatenated: the content of `values`, or `bytes` and `offsets`, or `dense`.
class Values {
 public:
  explicit Values(const FeatureSpec& spec) : spec_(spec) { append(offsets_, int64_t{0}); }

  void add(const void* values, size_t count) {
    for (size_t i = 0; i < count; i++) {
      if (spec_.dtype == DType::bytes) {
        const BytesRef& ref = static_cast<const BytesRef*>(values)[i];
        add(std::string(reinterpret_cast<const char*>(ref.data), ref.size));
      } else {
        bytes_.append(static_cast<const char*>(values) + i * size_of(spec_.dtype), size_of(spec_.dtype));
        count_++;
      }
    }
  }
  void add(const std::string& value) {
    bytes_ += value;
    append(offsets_, static_cast<int64_t>(bytes_.size()));
    count_++;
  }
  void pad() {
    if (spec_.dtype == DType::bytes) add(spec_.default_bytes.empty() ? "" : spec_.default_bytes[0]);
    const float f = spec_.default_floats.empty() ? 0 : spec_.default_floats[0];
    const int64_t i = spec_.default_ints.empty() ? 0 : spec_.default_ints[0];
    if (spec_.dtype == DType::float32) add(&f, 1);
    if (spec_.dtype == DType::int64) add(&i, 1);
  }
  /// Adds the arrays to `out`. `prefix` is like "f0."; `name` is the name of arrays of numbers.
  void store(Arrays& out, const std::string& prefix, const std::string& name, const std::vector<int64_t>& shape) const {
    if (spec_.dtype == DType::bytes) {
      out[prefix + "bytes"] = {"|u1", {static_cast<int64_t>(bytes_.size())}, bytes_};
      out[prefix + "offsets"] = {"<i8", {static_cast<int64_t>(count_) + 1}, offsets_};
      if (name == "dense") {
        std::string axes;
        for (int64_t axis : shape) append(axes, axis);
        out[prefix + "shape"] = {"<i8", {static_cast<int64_t>(shape.size())}, axes};
        if (shape.size() == 1 && count_ != 0) {  // in case all values have one length
          out[prefix + "dense"] = {"|u1", {shape[0], static_cast<int64_t>(bytes_.size()) / shape[0]}, bytes_};
        }
      }
    } else {
      out[prefix + name] = {spec_.dtype == DType::float32 ? "<f4" : "<i8", shape, bytes_};
    }
  }
  size_t count() const { return count_; }

 private:
  const FeatureSpec& spec_;
  std::string bytes_, offsets_;
  size_t count_ = 0;
};

/// Adds the arrays of a feature whose steps may differ: as a ragged tensor, and as a sparse one.
void add_nested(const FeatureSpec& spec, const std::string& prefix, std::span<const StepsRef> rows, Arrays& arrays) {
  Values values(spec);
  std::string row_splits, step_splits, coordinates, dense_shape;
  append(row_splits, int64_t{0});
  append(step_splits, int64_t{0});
  int64_t steps = 0, most_steps = 0, most_values = 0;
  for (size_t row = 0; row < rows.size(); row++) {
    const StepsRef& ref = rows[row];
    for (int64_t step = 0, begin = 0; step < static_cast<int64_t>(ref.steps); step++) {
      const int64_t end = ref.ends[step];
      for (int64_t i = 0; i < end - begin; i++)
        for (const int64_t at : {static_cast<int64_t>(row), step, i}) append(coordinates, at);
      most_values = std::max(most_values, end - begin);
      append(step_splits, static_cast<int64_t>(values.count()) + end);
      begin = end;
    }
    values.add(ref.all.values, ref.all.count);
    steps += static_cast<int64_t>(ref.steps);
    most_steps = std::max(most_steps, static_cast<int64_t>(ref.steps));
    append(row_splits, steps);
  }
  const auto count = static_cast<int64_t>(values.count());
  for (const int64_t axis : {static_cast<int64_t>(rows.size()), most_steps, most_values}) append(dense_shape, axis);
  values.store(arrays, prefix, "values", {count});
  arrays[prefix + "row_splits0"] = {"<i8", {static_cast<int64_t>(rows.size()) + 1}, row_splits};
  arrays[prefix + "row_splits1"] = {"<i8", {steps + 1}, step_splits};
  arrays[prefix + "coordinates"] = {"<i8", {count, 3}, coordinates};
  arrays[prefix + "dense_shape"] = {"<i8", {3}, dense_shape};
}

/// Returns the columns as the arrays that TensorFlow delivers. The rows `refused` count as empty.
Arrays arrays_of(const std::vector<FeatureSpec>& features, std::span<const flow::Column> columns, size_t rows,
                 const std::set<int64_t>& refused = {}) {
  Arrays arrays;
  for (size_t i = 0; i < features.size(); i++) {
    const FeatureSpec& spec = features[i];
    const std::string prefix = fmt::format("f{}.", i);
    const size_t elements = static_cast<size_t>(spec.shape.elements());
    Values values(spec);
    if (spec.kind == FeatureKind::fixed) {
      values.add(columns[i].data, rows * elements);
      const Shape shape = spec.shape.with_rows(static_cast<int64_t>(rows));
      values.store(arrays, prefix, "dense", {shape.begin(), shape.end()});
      continue;
    }
    if (spec.nested()) {
      add_nested(spec, prefix, std::span(columns[i].as<StepsRef>(), rows), arrays);
      continue;
    }
    const ValuesRef* refs = columns[i].as<ValuesRef>();
    if (spec.kind == FeatureKind::fixed_sequence) {
      std::string lengths;
      for (size_t row = 0; row < rows; row++) append(lengths, static_cast<int64_t>(refs[row].count / elements));
      arrays[prefix + "lengths"] = {"<i8", {static_cast<int64_t>(rows)}, lengths};
      size_t longest = 0;
      for (size_t row = 0; row < rows; row++) longest = std::max(longest, static_cast<size_t>(refs[row].count));
      for (size_t row = 0; row < rows; row++) {
        values.add(refs[row].values, refs[row].count);
        for (size_t n = refs[row].count; n < longest; n++) values.pad();
      }
      std::vector<int64_t> shape = {static_cast<int64_t>(rows), static_cast<int64_t>(longest / elements)};
      shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
      values.store(arrays, prefix, "dense", shape);
      continue;
    }
    std::string splits;
    append(splits, int64_t{0});
    for (size_t row = 0; row < rows; row++) {
      if (!refused.contains(static_cast<int64_t>(row))) values.add(refs[row].values, refs[row].count);
      append(splits, static_cast<int64_t>(values.count()));
    }
    values.store(arrays, prefix, "values", {static_cast<int64_t>(values.count())});
    arrays[prefix + "row_splits"] = {"<i8", {static_cast<int64_t>(rows) + 1}, splits};
  }
  return arrays;
}

/// Returns a list of the manifest as the bytes of such an array. Floats are in hexadecimal notation.
std::string bytes_of(const nlohmann::json& list, const std::string& dtype) {
  std::string bytes;
  for (const nlohmann::json& value : list) {
    if (value.is_array())
      bytes += bytes_of(value, dtype);
    else if (dtype == "<f4")
      append(bytes, std::strtof(value.get<std::string>().c_str(), nullptr));
    else if (dtype == "<i8")
      append(bytes, value.get<int64_t>());
    else
      append(bytes, static_cast<uint8_t>(value.get<int>()));
  }
  return bytes;
}

void check_arrays(const Arrays& ours, const GoldenCase& golden) {
  size_t checked = 0;
  for (const auto& [name, wanted] : golden.arrays) {
    if (name[0] != 'f' || name.find('.') == std::string::npos) continue;  // record_lengths, out.*, ...
    INFO("array " << name);
    const auto found = ours.find(name);
    REQUIRE(found != ours.end());
    CHECK(found->second.dtype == wanted.dtype);
    CHECK(found->second.shape == wanted.shape);
    CHECK(io::crc32c(std::as_bytes(std::span(found->second.bytes))) == wanted.crc32c);
    Sha256 sha256;
    sha256.update(std::as_bytes(std::span(found->second.bytes)));
    CHECK(sha256.hex() == wanted.sha256);
    checked++;
  }
  CHECK(checked >= golden.features.size());
}

/// Compares with protobuf's arrays instead of TensorFlow's.
void check_protobuf_arrays(const Arrays& ours, const nlohmann::json& wanted) {
  REQUIRE(wanted.is_object());
  for (const auto& [name, list] : wanted.items()) {
    INFO("array " << name);
    const auto found = ours.find(name);
    REQUIRE(found != ours.end());
    CHECK(found->second.bytes == bytes_of(list, found->second.dtype));
  }
}

struct Session {
  Session(const std::vector<FeatureSpec>& features, const std::vector<std::string>& records, RecordType type)
      : parser(flow::record_parser(pipeline(features, type))) {
    std::vector<io::RecordView> views;
    uint64_t payload = 0;
    for (const std::string& record : records) {
      views.push_back({reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
      payload += record.size();
    }
    memory.resize(parser->arena_bound(records.size(), payload));
    flow::Arena arena(memory);
    const auto session = parser->begin({static_cast<uint32_t>(records.size()), payload}, arena);
    session->parse(views, errors);
    columns.assign(session->columns().begin(), session->columns().end());
    hits = session->layout_hits();
  }
  static flow::PipelineSpec pipeline(const std::vector<FeatureSpec>& features, RecordType type) {
    flow::PipelineSpec spec;
    spec.sources.emplace_back().record_type = type;
    spec.features = features;
    return spec;
  }

  std::unique_ptr<const flow::RecordParser> parser;
  std::vector<std::byte> memory;
  std::vector<flow::Column> columns;
  std::vector<flow::RowError> errors;
  uint64_t hits = 0;
};

void check_errors(const std::vector<flow::RowError>& errors, const std::string& category,
                  const std::vector<int64_t>& rows) {
  std::vector<int64_t> refused;
  for (const flow::RowError& error : errors) {
    CHECK(name(error.category) == category);
    refused.push_back(error.row);
  }
  CHECK(refused == rows);
}

/// Checks records that are parsed one by one. If TensorFlow and protobuf agree, only their answer is right.
void check_each(const GoldenCase& golden, const std::vector<FeatureSpec>& features, const Session& session,
                const std::vector<std::string>& records) {
  const std::map<std::string, NpyArray> stored = load_npz(golden.npz);
  const auto accepted = stored.at("tensorflow_accepts").as<uint8_t>(), agree = stored.at("both_agree").as<uint8_t>();
  std::set<int64_t> ours_refused, theirs_refused;
  for (const flow::RowError& error : session.errors) ours_refused.insert(error.row);
  for (size_t row = 0; row < records.size(); row++) {
    if (!accepted[row]) theirs_refused.insert(static_cast<int64_t>(row));
    INFO("record " << row);
    if (agree[row]) CHECK(ours_refused.contains(static_cast<int64_t>(row)) == !accepted[row]);
  }
  // Compares row by row, by means of the splits.
  const Arrays arrays = arrays_of(features, session.columns, records.size(), ours_refused);
  for (size_t i = 0; i < features.size(); i++) {
    const std::string prefix = fmt::format("f{}.", i);
    const bool bytes = features[i].dtype == DType::bytes;
    const auto rows_of = [&](const std::string& splits_bytes, const std::string& offsets_bytes,
                             const std::string& values) {
      const auto* splits = reinterpret_cast<const int64_t*>(splits_bytes.data());
      const auto* offsets = reinterpret_cast<const int64_t*>(offsets_bytes.data());
      std::vector<std::vector<std::string>> rows(records.size());
      for (size_t row = 0; row < records.size(); row++) {
        for (int64_t v = splits[row]; v < splits[row + 1]; v++) {
          const int64_t size = static_cast<int64_t>(size_of(features[i].dtype));
          const int64_t from = bytes ? offsets[v] : v * size, to = bytes ? offsets[v + 1] : (v + 1) * size;
          rows[row].push_back(values.substr(static_cast<size_t>(from), static_cast<size_t>(to - from)));
        }
      }
      return rows;
    };
    const auto text = [](const NpyArray& array) {
      return std::string(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
    };
    const std::string values = prefix + (bytes ? "bytes" : "values");
    const auto ours = rows_of(arrays.at(prefix + "row_splits").bytes, bytes ? arrays.at(prefix + "offsets").bytes : "",
                              arrays.at(values).bytes);
    const auto theirs = rows_of(text(stored.at(prefix + "row_splits")),
                                bytes ? text(stored.at(prefix + "offsets")) : "", text(stored.at(values)));
    for (size_t row = 0; row < records.size(); row++) {
      INFO("record " << row << ", feature " << i);
      if (agree[row] && accepted[row]) CHECK(ours[row] == theirs[row]);
    }
  }
}

void run(const GoldenCase& golden) {
  std::vector<FeatureSpec> features;
  for (const GoldenFeature& feature : golden.features) features.push_back(spec_of(feature));
  const std::vector<std::string> records = read_records(golden);
  REQUIRE(records.size() == golden.records);
  const RecordType type = golden.parse == "sequence_example" ? RecordType::sequence_example : RecordType::example;
  CHECK(compare_with_protobuf(features, records, nullptr, type) == "");

  const Session session(features, records, type);
  if (golden.parse == "example_each") return check_each(golden, features, session, records);
  const auto rule = rules.find(golden.name);
  REQUIRE((rule != rules.end()) == !golden.oddity.is_null());  // no rule without a case, no such case without a rule
  if (rule == rules.end() && golden.error.stage == "parse") {
    return check_errors(session.errors, golden.error.category, golden.error.failing_records);
  }
  if (rule != rules.end() && rule->second == Rule::rejected)
    return check_errors(session.errors, "malformed_proto", {0});
  if (rule != rules.end() && rule->second == Rule::last_kind) return check_errors(session.errors, "wrong_dtype", {0});
  CHECK(session.errors.empty());
  const Arrays arrays = arrays_of(features, session.columns, records.size());
  if (rule != rules.end() && rule->second == Rule::format) {
    check_protobuf_arrays(arrays, golden.oddity.at("protobuf_arrays"));
  } else if (rule != rules.end() && rule->second == Rule::entries) {
    check_protobuf_arrays(arrays, {{"f0.values", {11, 12}}, {"f0.row_splits", {0, 2}}});
  } else if (golden.error.category.empty()) {
    check_arrays(arrays, golden);
  } else {
    CHECK(golden.error.stage == "post");  // the records are parsed; making the outputs from them fails
  }
}

struct Count {
  int run = 0, skipped = 0;
  bool operator==(const Count&) const = default;
};

TEST_CASE("every golden case that parses records") {
  std::map<std::string, Count> counts;
  for (const GoldenCase& golden : golden_cases()) {
    Count& count = counts[golden.group];
    if (golden.parse != "records") {
      INFO(golden.name << ": " << golden.description);
      run(golden);
      count.run++;
    } else {
      count.skipped++;
    }
  }
  for (const auto& [group, count] : counts) {
    fmt::print("{}: {} cases run, {} skipped{}\n", group, count.run, count.skipped,
               count.skipped == 0 ? "" : ": nothing to parse, records_golden_test reads them");
  }
  const std::map<std::string, Count> expected = {{"framing", {0, 125}}, {"compression", {2, 52}}, {"shards", {3, 3}},
                                                 {"proto", {213, 0}},   {"sequence", {22, 0}},    {"chess", {7, 0}},
                                                 {"images", {11, 0}}};
  CHECK(counts == expected);
}

TEST_CASE("chess records take the short way") {
  const GoldenCase& golden = golden_case("chess/main");
  std::vector<FeatureSpec> features;
  for (const GoldenFeature& feature : golden.features) features.push_back(spec_of(feature));
  const Session session(features, read_records(golden), RecordType::example);
  fmt::print("chess/main: {} of {} records by a learned layout\n", session.hits, golden.records);
  CHECK(session.hits * 100 >= golden.records * 99);
}

}  // namespace
}  // namespace feedline::test
