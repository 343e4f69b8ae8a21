// feedline cat: prints records as JSON, one per line.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <span>

#include "base/base64.h"
#include "feedline/records.h"
#include "tool/commands/commands.h"
#include "tool/commands/file_flags.h"
#include "tool/commands/flags.h"
#include "tool/common/example_view.h"
#include "tool/common/files.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

// Without --full: the maximum numbers of bytes that are shown of a value, and of values that are shown of a list.
constexpr size_t shown_bytes = 48;
constexpr int shown_values = 16;

struct CatArgs {
  std::string file;
  RecordReader::Options how;
  std::optional<uint64_t> record, limit;
  bool full = false;
};

/// Returns a string if the bytes are text, else an object that holds their base64 form and length. Without `full`, a
/// long value is replaced by an object with its beginning and its length.
Json bytes_json(std::string_view bytes, bool full) {
  const bool text = is_printable(bytes);
  if (full || bytes.size() <= shown_bytes) {
    return text ? Json(bytes) : Json{{"base64", base64(bytes)}, {"length", bytes.size()}};
  }
  if (!text) return {{"base64_begin", base64(bytes.substr(0, shown_bytes))}, {"length", bytes.size()}};
  return {{"text_begin", cut_text(bytes, shown_bytes)}, {"length", bytes.size()}};
}

/// Returns the shortest decimal number that reads back as this float. NaN and infinities become strings, because JSON
/// has no numbers for them.
Json float_json(float value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

Json values_json(const proto::Feature& feature, bool full) {
  const int count = count_of(feature), shown = full ? count : std::min(count, shown_values);
  Json values = Json::array();
  for (int i = 0; i < shown; i++) {
    if (feature.has_bytes_list()) values.push_back(bytes_json(feature.bytes_list().value(i), full));
    if (feature.has_float_list()) values.push_back(float_json(feature.float_list().value(i)));
    if (feature.has_int64_list()) values.push_back(feature.int64_list().value(i));
  }
  Json json = {{"kind", name(kind_of(feature))}, {"count", count}};
  json[shown < count ? "values_begin" : "values"] = std::move(values);
  return json;
}

/// Returns a key as text. Keys are bytes; a key that is not UTF-8 is shown in hexadecimal.
std::string shown_key(std::string_view key) {
  return is_utf8(key) ? std::string(key) : "hex " + hexadecimal(std::as_bytes(std::span(key)));
}

/// The members of a JSON object. They are collected here first, because a Json compares each key that is added with all
/// keys that it has.
using Object = std::vector<std::pair<std::string, Json>>;
/// Makes the JSON object without comparing keys, which must all differ.
Json to_object(Object&& members) {
  Json json = Json::object();
  auto& map = json.get_ref<Json::object_t&>();
  for (auto& [key, value] : members)
    map.std::vector<Json::object_t::value_type>::emplace_back(std::move(key), std::move(value));
  return json;
}

Json features_json(const ExampleView& message, bool full) {
  Object members;
  for (const auto* entry : message.features())
    members.emplace_back(shown_key(entry->key()), values_json(entry->value(), full));
  return to_object(std::move(members));
}

Json record_json(const Record& record, ExampleView& message, bool full) {
  Json json = {{"record", record.number}, {"offset", record.offset}, {"length", record.payload.size()}};
  MessageTypeGuess guess;
  guess.add(message, message.parse(record.payload));
  json["message"] = name(guess.type());
  if (guess.type() == MessageType::other) {
    json["bytes"] =
        bytes_json(std::string_view(reinterpret_cast<const char*>(record.payload.data()), record.payload.size()), full);
    return json;
  }
  const bool sequence = guess.type() == MessageType::sequence_example;
  json[sequence ? "context" : "features"] = features_json(message, full);
  if (!sequence) return json;
  Object lists;
  for (const auto* entry : message.feature_lists()) {
    const auto& steps = entry->value().feature();
    const int shown = full ? steps.size() : std::min(steps.size(), shown_values);
    Json values = Json::array();
    for (int i = 0; i < shown; i++) values.push_back(values_json(steps[i], full));
    Json list = {{"count", steps.size()}};
    list[shown < steps.size() ? "steps_begin" : "steps"] = std::move(values);
    lists.emplace_back(shown_key(entry->key()), std::move(list));
  }
  json["feature_lists"] = to_object(std::move(lists));
  return json;
}

int cat(const CatArgs& args) {
  RecordReader reader(args.file, args.how);
  const uint64_t first = args.record.value_or(0);
  const uint64_t end = args.record ? first + 1 : args.limit.value_or(UINT64_MAX);
  bool damaged = false;
  uint64_t seen = 0;
  Record record;
  ExampleView message;
  for (ReadResult result; seen < end && (result = reader.next(record)) != ReadResult::end;) {
    if (result == ReadResult::error) {
      print_error("{}", reader.error().what());
      damaged = true;
    } else if (seen++ >= first) {
      print_json_line(record_json(record, message, args.full));
    }
  }
  if (args.record && seen <= first) {
    throw Error(Category::bad_pipeline,
                fmt::format("there is no record {}: the file has {}, numbered from 0", first,
                            format_count(seen, "good record")),
                Place::of_file(args.file));
  }
  return damaged ? 1 : 0;
}

}  // namespace

void add_cat(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "cat", "print records as JSON, one on each line; long values are shortened", cat);
  command.add_option("FILE", args.file, "a TFRecord file")->required()->option_text(" ");
  CLI::Option* record =
      add_number(command, "--record N", args.record, whole_number(0), "print only record N; the first is 0");
  add_number(command, "--limit N", args.limit, whole_number(1), "print only the first N records (default: all)")
      ->excludes(record);
  add_compression(command, args.how.compression);
  add_record_limit(command, args.how.record_limit);
  command.add_flag("--full", args.full, "print all values in full");
}

}  // namespace feedline::tool
