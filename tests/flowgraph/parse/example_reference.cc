#include "flowgraph/parse/example_reference.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/machine.h"
#include "base/mul_div.h"
#include "flowgraph/parse/absent_features.h"
#include "flowgraph/parse/example.pb.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_parser.h"
#include "fuzz/draw.h"
#include "support/guarded_memory.h"

namespace feedline::test {
namespace {

using flow::FeatureKind;
using flow::FeatureSpec;
using flow::RecordType;
using testing::Feature;

/// The values of one row of a feature, as bytes, so that floats are compared bit by bit.
using Row = std::string;

/// Why a record is refused, and what the message must say of it.
struct Refusal {
  Category category;
  std::string says;
  bool operator==(const Refusal&) const = default;
};

struct Answer {
  std::optional<Refusal> refusal;
  int feature = -1;                // the refused one, or -1
  std::vector<Row> rows;           // of each feature, if the record is not refused
  std::vector<bool> held;          // the features that the record has; empty if it is malformed
  std::vector<std::string> names;  // of all features that it has
};

template <typename T>
void add_numbers(const T* numbers, size_t count, Row& row) {
  row.append(reinterpret_cast<const char*>(numbers), count * sizeof(T));
}

void add_number(size_t number, Row& row) { add_numbers(&number, 1, row); }

void add_bytes(std::string_view bytes, Row& row) {
  add_number(bytes.size(), row);
  row += bytes;
}

void add_values(const Feature& feature, Row& row) {
  for (const std::string& value : feature.bytes_list().value()) add_bytes(value, row);
  add_numbers(feature.float_list().value().data(), static_cast<size_t>(feature.float_list().value_size()), row);
  add_numbers(feature.int64_list().value().data(), static_cast<size_t>(feature.int64_list().value_size()), row);
}

size_t count_of(const Feature& feature) {
  return static_cast<size_t>(feature.bytes_list().value_size() + feature.float_list().value_size() +
                             feature.int64_list().value_size());
}

/// What a record holds: features of an Example, or of a SequenceExample.
struct Found {
  std::map<std::string, Feature> features;
  std::map<std::string, testing::FeatureList> lists;
  std::vector<std::string> names;
};

void add_names(const testing::Entries& entries, std::string_view prefix, std::vector<std::string>& names) {
  for (const testing::Entry& entry : entries.entry()) {
    std::string name = std::string(prefix) + entry.key();
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
}

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
    add_names(frame.features(), "", found.names);
  } else {
    testing::SequenceFrame frame;
    if (!frame.ParseFromString(record) || !read_entries(frame.context(), features, false, found.features) ||
        !read_entries(frame.feature_lists(), features, true, found.lists))
      return std::nullopt;
    add_names(frame.context(), flow::context_prefix, found.names);
    add_names(frame.feature_lists(), flow::feature_lists_prefix, found.names);
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
  add_numbers(spec.default_floats.data(), spec.default_floats.size(), row);
  add_numbers(spec.default_ints.data(), spec.default_ints.size(), row);
  for (const std::string& value : spec.default_bytes) add_bytes(value, row);
  return row;
}

std::optional<Refusal> wrong_type(const FeatureSpec& spec, const Feature& feature) {
  const DType dtype = feature.has_bytes_list()   ? DType::bytes
                      : feature.has_float_list() ? DType::float32
                                                 : DType::int64;
  if (dtype != spec.dtype) return Refusal{Category::wrong_dtype, fmt::format("holds {} values,", name(dtype))};
  return std::nullopt;
}

std::optional<Refusal> wrong_length(const FeatureSpec& spec, std::string_view value) {
  if (spec.length < 0 || value.size() == static_cast<size_t>(spec.length)) return std::nullopt;
  return Refusal{Category::wrong_length, fmt::format(" {} bytes,", value.size())};
}

std::optional<Refusal> wrong_length(const FeatureSpec& spec, const Feature& feature) {
  for (const std::string& value : feature.bytes_list().value())
    if (auto wrong = wrong_length(spec, value)) return wrong;
  return std::nullopt;
}

/// Appends the values to `row`, or returns why they are refused.
std::optional<Refusal> judge_values(const FeatureSpec& spec, const Feature& feature, Row& row) {
  if (auto wrong = wrong_type(spec, feature)) return wrong;
  add_values(feature, row);
  const size_t count = count_of(feature);
  const size_t elements = static_cast<size_t>(spec.shape.elements());
  const bool right = spec.kind == FeatureKind::fixed || elements == 0 ? count == elements : count % elements == 0;
  if (!right || (spec.max_values >= 0 && count > static_cast<size_t>(spec.max_values)))
    return Refusal{Category::wrong_count, fmt::format("the record holds {} values,", count)};
  return wrong_length(spec, feature);
}

/// Does the same for steps. The number of values in each step comes before these values if steps may differ.
std::optional<Refusal> judge_steps(const FeatureSpec& spec, const testing::FeatureList& list, Row& row) {
  const auto elements = static_cast<size_t>(spec.shape.elements());
  const auto steps = static_cast<size_t>(list.feature_size());
  const size_t each = spec.kind == FeatureKind::fixed ? elements / static_cast<size_t>(spec.shape[0]) : elements;
  size_t values = 0;
  for (int number = 0; number < list.feature_size(); number++) {
    const Feature& step = list.feature(number);
    const auto in_step = [&](Refusal wrong) {
      wrong.says = fmt::format("step {} of the record {}", number, wrong.says);
      return wrong;
    };
    if (step.kind_case() != Feature::KIND_NOT_SET)
      if (const auto wrong = wrong_type(spec, step)) return in_step(*wrong);
    const size_t count = count_of(step);
    if (!spec.nested() && count != each)
      return in_step({Category::wrong_count, fmt::format("holds {} values,", count)});
    if (auto wrong = wrong_length(spec, step)) {
      wrong->says = "holds a value of" + wrong->says;
      return in_step(*wrong);
    }
    if (spec.nested()) add_number(count, row);
    add_values(step, row);
    values += count;
  }
  if ((spec.kind == FeatureKind::fixed && values != elements) ||
      (spec.max_values >= 0 && std::max(values, spec.nested() ? steps : 0) > static_cast<size_t>(spec.max_values)))
    return Refusal{Category::wrong_count,
                   spec.kind == FeatureKind::fixed ? fmt::format("the record has {} steps,", steps)
                   : spec.nested() ? fmt::format("the record has {} steps with {} values in all,", steps, values)
                                   : fmt::format("the record holds {} values,", values)};
  return std::nullopt;
}

Answer judge(const std::vector<FeatureSpec>& features, const Found& found) {
  Answer answer;
  answer.names = found.names;
  const auto holds = [&](const FeatureSpec& spec) {
    if (spec.in_list()) return found.lists.contains(spec.key);
    const auto at = found.features.find(spec.key);
    return at != found.features.end() && at->second.kind_case() != Feature::KIND_NOT_SET;
  };
  for (const FeatureSpec& spec : features) answer.held.push_back(holds(spec));
  for (size_t i = 0; i < features.size(); i++) {
    const FeatureSpec& spec = features[i];
    Row row;
    if (answer.held[i]) {
      answer.refusal = spec.in_list() ? judge_steps(spec, found.lists.at(spec.key), row)
                                      : judge_values(spec, found.features.at(spec.key), row);
    } else if (spec.may_lack()) {
      row = defaults_of(spec);
    } else {
      answer.refusal = {Category::missing_feature, "the record does not have this feature"};
    }
    if (answer.refusal) {
      answer.feature = static_cast<int>(i);
      answer.rows.clear();
      return answer;
    }
    answer.rows.push_back(row);
  }
  return answer;
}

Answer judge_raw(const FeatureSpec& spec, const std::string& record) {
  Answer answer{wrong_length(spec, record), 0, std::vector<Row>(1), {true}, {}};
  add_bytes(record, answer.rows[0]);
  return answer;
}

/// Sets `answer` to how the record must be read. Returns in what protobuf contradicts itself, or an empty string.
std::string ask_protobuf(const std::vector<FeatureSpec>& features, const std::string& record, RecordType type,
                         Answer& answer) {
  if (type == RecordType::raw) {
    answer = judge_raw(features.front(), record);
    return "";
  }
  const auto found = read_frame(record, features, type);
  if (found)
    answer = judge(features, *found);
  else
    answer.refusal = {Category::malformed_proto, ""};
  const auto strict = read_strictly(record, type);
  if (!strict) return "";
  const Answer whole = judge(features, *strict);
  return found && whole.refusal == answer.refusal && whole.rows == answer.rows
             ? ""
             : "the reference contradicts protobuf's own message";
}

Row row_of(const FeatureSpec& spec, const flow::Column& column, size_t row) {
  Row out;
  const auto add = [&](const void* values, size_t begin, size_t end) {
    if (spec.dtype == DType::float32) add_numbers(static_cast<const float*>(values) + begin, end - begin, out);
    if (spec.dtype == DType::int64) add_numbers(static_cast<const int64_t*>(values) + begin, end - begin, out);
    for (size_t i = begin; spec.dtype == DType::bytes && i < end; i++) {
      const flow::BytesRef& ref = static_cast<const flow::BytesRef*>(values)[i];
      add_bytes({reinterpret_cast<const char*>(ref.data), ref.size}, out);
    }
  };
  if (spec.nested()) {
    const flow::StepsRef& ref = column.as<flow::StepsRef>()[row];
    size_t begin = 0;
    for (size_t step = 0; step < ref.steps; step++) {
      add_number(ref.ends[step] - begin, out);
      add(ref.all.values, begin, ref.ends[step]);
      begin = ref.ends[step];
    }
    if (begin != ref.all.count) out += "values after the last step";
  } else if (spec.kind == FeatureKind::fixed) {
    const auto count = static_cast<size_t>(spec.shape.elements());
    add(column.as<std::byte>() + row * flow::row_bytes(spec), 0, count);
  } else {
    add(column.as<flow::ValuesRef>()[row].values, 0, column.as<flow::ValuesRef>()[row].count);
  }
  return out;
}

/// What a session says of all records.
struct Summary {
  uint64_t hits;
  std::vector<bool> seen;
  std::vector<uint64_t> lacking;
  bool operator==(const Summary&) const = default;
};

/// The records, the answers of protobuf, and what the session is told of the records.
struct Comparison {
  RecordType type;
  const std::vector<FeatureSpec>& features;
  const flow::RecordParser& parser;
  std::span<const io::RecordView> records;
  std::span<const Answer* const> answers;
  flow::ChunkRecords chunk;
  uint64_t planned;  // bytes of the arena

  std::string parse_all_at_once(SimdLevel simd, Summary& summary) const;
  std::string parse_one_by_one(Summary& summary) const;
  std::string compare(const flow::RecordParser::Session& session, std::span<const flow::RowError> errors,
                      Summary& summary) const;
  std::string compare_row(const flow::RecordParser::Session& session, size_t row, const flow::RowError* error) const;
};

/// Parses in an arena of the planned size before a page that cannot be touched, so that a write past its end ends the
/// program. A write past the end of a column changes the next one.
std::string Comparison::parse_all_at_once(SimdLevel simd, Summary& summary) const {
  const ScopedSimdLevel level(simd);
  const GuardedMemory memory(planned);
  flow::Arena arena(memory.bytes());
  const auto session = parser.begin(chunk, arena);
  std::vector<flow::RowError> errors;
  session->parse(records, errors);
  if (arena.left() < chunk.kept_free) return "the session took what it must keep free";
  return compare(*session, errors, summary);
}

/// Parses with the best SIMD in an arena with gaps. With AddressSanitizer, a record can write only to its own row of
/// each column.
std::string Comparison::parse_one_by_one(Summary& summary) const {
  constexpr size_t gap = 32;
  std::map<std::string_view, size_t> features_of_key;
  size_t most = 1;
  for (const FeatureSpec& spec : features) most = std::max(most, ++features_of_key[spec.key]);
  // A column or a room is a block. Each other list is one or two, and belongs to an entry of 2 bytes or more.
  const size_t blocks = features.size() * (1 + records.size()) + most * chunk.payload_bytes;
  const size_t size = parser.arena_bound(chunk.rows, chunk.payload_bytes) + chunk.kept_free + gap * blocks;
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(size);
  flow::Arena arena({memory.get(), size}, gap);
  const auto session = parser.begin(chunk, arena);
  std::vector<flow::RowError> errors;
  // Lets a record touch the rows [first, last) of each column.
  const auto allow = [&](size_t first, size_t last) {
    for (size_t i = 0; i < features.size(); i++) {
      const size_t row = flow::row_bytes(features[i]);
      std::byte* const rows = session->columns()[i].as<std::byte>();
      ASAN_POISON_MEMORY_REGION(rows, round_up(chunk.rows * row, sizeof(uint64_t)));
      ASAN_UNPOISON_MEMORY_REGION(rows + first * row, (last - first) * row);
    }
  };
  for (size_t row = 0; row < records.size(); row++) {
    allow(row, row + 1);
    session->parse(records.subspan(row, 1), errors);
  }
  allow(0, records.size());
  return compare(*session, errors, summary);
}

/// Returns what differs from the answers, or an empty string.
std::string Comparison::compare(const flow::RecordParser::Session& session, std::span<const flow::RowError> errors,
                                Summary& summary) const {
  summary = {session.layout_hits(), session.seen(), {session.lacking().begin(), session.lacking().end()}};
  std::vector<uint64_t> lacking(features.size());
  auto error = errors.begin();
  for (size_t row = 0; row < records.size(); row++) {
    const Answer& answer = *answers[row];
    const bool refused = error != errors.end() && error->row == row;
    const std::string difference = compare_row(session, row, refused ? &*error : nullptr);
    if (!difference.empty()) return fmt::format("row {}: {}", row, difference);
    if (refused) ++error;
    for (size_t i = 0; i < answer.held.size(); i++) {
      lacking[i] += !answer.refusal && !answer.held[i];
      if (answer.held[i] && !summary.seen[i]) return fmt::format("feature {} was not seen in row {}", i, row);
    }
  }
  if (error != errors.end()) return "errors out of order";
  for (size_t i = 0; i < features.size(); i++) {
    const auto has_key = [&](const io::RecordView& record) {
      return std::string_view(reinterpret_cast<const char*>(record.data), record.size).find(features[i].key) !=
             std::string_view::npos;
    };
    if (summary.seen[i] && type != RecordType::raw && std::ranges::none_of(records, has_key))
      return fmt::format("feature {} was seen in no record", i);
  }
  if (lacking != summary.lacking) return "a feature is lacking in another number of records";
  size_t absent = 0;
  for (size_t i = 0; i < features.size(); i++) absent += !records.empty() && features[i].may_lack() && !summary.seen[i];
  flow::AbsentFeatures watched(features, parser);
  watched.add(summary.seen, records);
  return watched.errors("").size() == absent ? "" : "another number of features is absent";
}

std::string Comparison::compare_row(const flow::RecordParser::Session& session, size_t row,
                                    const flow::RowError* error) const {
  const Answer& answer = *answers[row];
  const std::optional<Refusal>& wanted = answer.refusal;
  const auto text = [](Category category) { return std::string(name(category)); };
  if (error ? !wanted || error->category != wanted->category : wanted.has_value())
    return fmt::format("{}, with protobuf {}", error ? text(error->category) : "accepted",
                       wanted ? text(wanted->category) : "accepted");
  if (error) {
    if (error->message.empty() || error->message.find(wanted->says) == std::string::npos)
      return fmt::format("the message is '{}', but '{}' is wrong", error->message, wanted->says);
    if (wanted->category != Category::malformed_proto && error->feature != answer.feature)
      return fmt::format("feature {} is refused, protobuf's values refuse {}", error->feature, answer.feature);
  } else {
    for (size_t i = 0; i < features.size(); i++)
      if (row_of(features[i], session.columns()[i], row) != answer.rows[i])
        return fmt::format("other values in feature {}", i);
  }
  return "";
}

}  // namespace

std::string compare_with_protobuf(const std::vector<FeatureSpec>& features, std::span<const std::string> records,
                                  uint64_t* hits, RecordType type, const ArenaPlan& plan) {
  const google::protobuf::LogSilencer silencer;  // libprotobuf logs keys that are not UTF-8
  flow::PipelineSpec pipeline;
  pipeline.sources.emplace_back().record_type = type;
  pipeline.features = features;
  const auto parser = flow::record_parser(pipeline);
  std::map<std::string_view, Answer> answer_of;
  std::vector<const Answer*> answers;
  std::vector<ExactBlock> blocks;
  blocks.reserve(records.size());
  std::vector<io::RecordView> views;
  uint64_t payload = 0;
  for (const std::string& record : records) {
    const ExactBlock& block = blocks.emplace_back(record);
    views.push_back({block.data(), static_cast<uint32_t>(block.size()), 0});
    const auto [answer, is_new] = answer_of.try_emplace(record);
    if (is_new) {
      const std::string contradiction = ask_protobuf(features, record, type, answer->second);
      if (!contradiction.empty()) return fmt::format("row {}: {}", answers.size(), contradiction);
      const std::vector<std::string> names = parser->feature_names(views.back());
      if (!answer->second.held.empty() && names != answer->second.names)
        return fmt::format("row {}: other names of features", answers.size());
    }
    answers.push_back(&answer->second);
    payload += record.size();
  }
  const auto rows = static_cast<uint32_t>(records.size());
  const Comparison comparison{
      .type = type,
      .features = features,
      .parser = *parser,
      .records = views,
      .answers = answers,
      .chunk = {.rows = rows, .payload_bytes = payload + plan.other_payload_bytes, .kept_free = plan.kept_free},
      .planned = parser->arena_bound(rows + plan.more_rows, payload + plan.more_payload_bytes) + plan.kept_free};
  Summary at_once, with_simd, one_by_one;
  std::string difference = comparison.parse_all_at_once(SimdLevel::portable, at_once);
  if (difference.empty()) difference = comparison.parse_all_at_once(simd_level(), with_simd);
  if (difference.empty()) difference = comparison.parse_one_by_one(one_by_one);
  if (difference.empty() && at_once != with_simd) difference = "with SIMD records count otherwise";
  if (difference.empty() && at_once != one_by_one) difference = "records one by one count otherwise";
  if (hits) *hits = at_once.hits;
  return difference;
}

}  // namespace feedline::test
