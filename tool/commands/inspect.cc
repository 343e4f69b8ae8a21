// feedline inspect: tells which features TFRecord files hold, or writes a pipeline for them.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/base64.h"
#include "base/byte_size.h"
#include "tool/commands/commands.h"
#include "tool/commands/file_flags.h"
#include "tool/common/files.h"
#include "tool/common/terminal.h"
#include "tool/inspect/feature_stats.h"
#include "tool/inspect/infer_pipeline.h"

namespace feedline::tool {
namespace {

struct InspectArgs {
  FileArgs input;
  bool json = false, pipeline = false;
};

/// One line of the result: a feature and one kind of its values.
struct Row {
  std::string name;
  std::string_view kind;
  KindStats stats;
  bool is_bytes = false;
};

/// Returns the rows, ordered by name and then kind. Features of a SequenceExample are named context/NAME and
/// feature_lists/NAME; each feature list has one row for its steps, and rows for the values of all its steps together.
std::vector<Row> rows_of(const DataStats& data) {
  std::vector<Row> rows;
  const auto add = [&](const std::string& row_name, const FeatureStats& stats) {
    for (const Kind kind : {Kind::bytes_list, Kind::float_list, Kind::int64_list, Kind::unset}) {
      if (stats.of(kind).records) rows.push_back({row_name, name(kind), stats.of(kind), kind == Kind::bytes_list});
    }
  };
  if (data.type() == MessageType::other) return rows;
  const bool sequence = data.type() == MessageType::sequence_example;
  for (const auto& [key, stats] : data.features()) add(sequence ? "context/" + key : key, stats);
  if (!sequence) return rows;
  for (const auto& [key, stats] : data.feature_lists()) {
    rows.push_back({"feature_lists/" + key + " (steps)", "steps", stats.steps, false});
    add("feature_lists/" + key + " (values)", stats.values);
  }
  return rows;
}

Json row_json(const Row& row) {
  Json json = {{"name", row.name}, {"kind", row.kind}, {"records", row.stats.records}};
  if (!is_utf8(row.name)) json["name_hex"] = hexadecimal(std::as_bytes(std::span(row.name)));
  json["count_min"] = row.stats.count_min;
  json["count_max"] = row.stats.count_max;
  json["total"] = row.stats.total;
  if (row.is_bytes) {
    json["length_min"] = row.stats.length_min;
    json["length_max"] = row.stats.length_max;
  }
  const PictureStats& pictures = row.stats.pictures;
  if (pictures.are_most_of(row.stats.total))
    json["pictures"] = {{"jpeg", pictures.jpeg},
                        {"png", pictures.png},
                        {"unreadable", row.stats.total - pictures.count()},
                        {"one_channel", pictures.grey},
                        {"three_channels", pictures.count() - pictures.grey},
                        {"width_min", pictures.width_min},
                        {"width_max", pictures.width_max},
                        {"height_min", pictures.height_min},
                        {"height_max", pictures.height_max},
                        {"one_size", pictures.one_size()},
                        {"pixels_max", pictures.pixels_max}};
  return json;
}

void print_inspected(const DataStats& data, const std::vector<FileSummary>& files) {
  for (const FileSummary& file : files) print_line("{}", describe(file));
  fmt::print("\nmessage: {}, {}", name(data.type()), format_count(data.records(), "record"));
  if (data.type() != MessageType::other && data.unparsed()) {
    fmt::print(", {} of a different type", format_count(data.unparsed()));
  }
  const std::vector<Row> rows = rows_of(data);
  fmt::print("\n");
  if (rows.empty()) return;
  size_t width = 7;
  for (const Row& row : rows) width = std::max(width, printable(row.name).size());
  fmt::print("\n{:{}}  {:10}  {:>12}  {:>12}  {}\n", "feature", width, "kind", "records", "values", "bytes per value");
  for (const Row& row : rows) {
    std::string bytes = row.is_bytes && row.stats.total ? format_range(row.stats.length_min, row.stats.length_max) : "";
    if (row.stats.pictures.are_most_of(row.stats.total))
      bytes += fmt::format(" ({})", describe(row.stats.pictures, row.stats.total));
    fmt::print("{:{}}  {:10}  {:>12}  {:>12}  {}\n", printable(row.name), width, row.kind,
               format_count(row.stats.records), format_range(row.stats.count_min, row.stats.count_max), bytes);
  }
}

int inspect(const InspectArgs& args) {
  std::vector<DataStats> by_file(args.input.files.size());
  const auto files =
      scan_files(args.input, [&](size_t file, const Record& record) { by_file[file].add(record.payload); });
  DataStats data;
  for (const DataStats& of_file : by_file) data.add(of_file);

  const size_t damaged = print_damage(files);
  if (args.pipeline) {
    if (std::none_of(files.begin(), files.end(), [](const FileSummary& file) { return file.opened(); })) return 1;
    refuse_two_data_sets(by_file, files);
    for (const FileSummary& file : files)
      if (file.exceeds_limit())
        throw Error(
            Category::record_too_large,
            fmt::format("has records that are longer than --record-limit, {}, which a pipeline would leave out; give a "
                        "larger --record-limit, and the pipeline will have the record_limit that it needs",
                        format_byte_size(args.input.record_limit)),
            Place::of_file(file.file));
    fmt::print("{}", infer_pipeline(data, files));
  } else if (args.json) {
    Json result = {{"files", Json::array()}, {"message", name(data.type())}, {"features", Json::array()}};
    for (const FileSummary& file : files) {
      Json entry = to_json(file);
      entry["size"] = file.size;
      entry["record_min"] = file.record_min;
      entry["record_max"] = file.record_max;
      result["files"].push_back(std::move(entry));
    }
    for (const Row& row : rows_of(data)) result["features"].push_back(row_json(row));
    print_document(result);
  } else {
    print_inspected(data, files);
  }
  return damaged ? 1 : 0;
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "inspect", "show what TFRecord files hold, or write a pipeline for them", inspect);
  add_file_args(command, args.input);
  CLI::Option* json = command.add_flag("--json", args.json, "print the result as JSON");
  command.add_flag("--pipeline", args.pipeline, "print a pipeline for these files, inferred from their records")
      ->excludes(json);
}

}  // namespace feedline::tool
