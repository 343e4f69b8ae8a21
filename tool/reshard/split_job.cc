#include "tool/reshard/split_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/format_count.h"
#include "io/file.h"
#include "io/output_file.h"

namespace feedline::cli {
namespace {

constexpr int format_version = 1;

// Returns the options with the names of their flags, because error messages show these names if two jobs differ.
Json options_json(const SplitOptions& options) {
  const auto number = [](const std::optional<uint64_t>& value) { return value ? Json(*value) : Json(); };
  return {{"--name", options.name},
          {"--shards", number(options.shards)},
          {"--shard-size", number(options.shard_bytes)},
          {"--compression", options.gzip ? "gzip" : "none"},
          {"--skip-bad", options.skip_bad},
          {"--shuffle", options.shuffle},
          {"--seed", options.shuffle ? Json(options.seed) : Json()},
          {"--record-limit", options.record_limit == io::default_record_limit ? Json() : Json(options.record_limit)}};
}

// A path may contain any bytes, but JSON must be UTF-8.
Json path_json(const std::string& path) { return is_utf8(path) ? Json(path) : Json("hex " + to_hex(path)); }

Json inputs_json(const std::vector<FileIdentity>& inputs) {
  Json list = Json::array();
  for (const FileIdentity& file : inputs)
    list.push_back({{"path", path_json(file.path)}, {"size", file.size}, {"mtime_ns", file.mtime_ns}});
  return list;
}

Json map_json(const RecordMap& map) {
  Json list = Json::array();
  for (const MappedFile& file : map.files()) {
    Json marks = Json::array();
    for (const io::IndexEntry& mark : file.marks) marks.push_back({mark.offset, mark.record});
    list.push_back({{"compression", static_cast<int>(file.compression)},
                    {"records", file.records},
                    {"payload_bytes", file.payload_bytes},
                    {"marks", std::move(marks)},
                    {"bad_offsets", file.bad_offsets}});
  }
  return list;
}

RecordMap map_from(const Json& list, const std::vector<FileIdentity>& inputs, uint64_t record_limit) {
  std::vector<MappedFile> files;
  for (const Json& entry : list) {
    MappedFile& file = files.emplace_back();
    file.identity = inputs.at(files.size() - 1);
    file.compression = static_cast<Compression>(entry.at("compression").get<int>());
    file.records = entry.at("records");
    file.payload_bytes = entry.at("payload_bytes");
    for (const Json& mark : entry.at("marks")) file.marks.push_back({mark.at(0), mark.at(1)});
    file.bad_offsets = entry.at("bad_offsets").get<std::vector<uint64_t>>();
  }
  return RecordMap(std::move(files), record_limit);
}

/// Returns a value of the job's file as error messages show it.
std::string shown(const Json& value) {
  return value.is_null() ? "not given" : value.is_boolean() ? (value ? "given" : "not given") : value.dump();
}

/// Returns how `there`, the job in the file, differs from `wanted`; empty: it does not.
std::string difference(const Json& there, const SplitJob& wanted) {
  const Json options = options_json(wanted.options), inputs = inputs_json(wanted.inputs);
  for (const auto& [flag, value] : options.items()) {
    const Json was = there.at("options").value(flag, Json());  // earlier versions had fewer flags
    if (was != value) return fmt::format("{} was {}, and is {} now", flag, shown(was), shown(value));
  }
  const Json& were = there.at("inputs");
  for (size_t i = 0; i < std::min(were.size(), inputs.size()); i++) {
    if (were[i].at("path") != inputs[i].at("path"))
      return fmt::format("input {} was {}, and is {} now", i + 1, shown(were[i].at("path")),
                         shown(inputs[i].at("path")));
    if (were[i].at("size") != inputs[i].at("size"))
      return fmt::format("{} had {} bytes, and has {} now", shown(inputs[i].at("path")), shown(were[i].at("size")),
                         shown(inputs[i].at("size")));
    if (were[i].at("mtime_ns") != inputs[i].at("mtime_ns"))
      return fmt::format("{} has been changed since then", shown(inputs[i].at("path")));
  }
  if (were.size() != inputs.size())
    return fmt::format("there {} {}, and now there are {}", were.size() == 1 ? "was" : "were",
                       format_count(were.size(), "input"), inputs.size());
  return "";
}

}  // namespace

std::string job_path(const std::string& folder, const std::string& name) {
  return fmt::format("{}/.{}.split.json", folder, name);
}

void save_job(const std::string& path, const SplitJob& job) {
  Json json = {{"feedline split", format_version},
               {"options", options_json(job.options)},
               {"inputs", inputs_json(job.inputs)},
               {"shards", job.shards},
               {"files", map_json(job.map)},
               {"bad", job.bad},
               {"buckets", nullptr}};
  if (job.buckets)
    json["buckets"] = {{"shards_per_unit", job.buckets->shards_per_unit},
                       {"buckets_per_unit", job.buckets->buckets_per_unit},
                       {"bytes", job.buckets->bytes}};
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  io::OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.publish();
}

std::optional<SplitJob> load_job(const std::string& path, const SplitJob& wanted) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const io::InputFile file(path);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  std::string why;
  try {
    const Json json = Json::parse(text);
    if (const int version = json.at("feedline split"); version != format_version)
      throw Error(
          Category::io_error,
          fmt::format("was written by another version of feedline: it has format {}, and this version reads {}; "
                      "continue with that version, or choose another --out or --name",
                      version, format_version),
          Place::of_file(path));
    why = difference(json, wanted);
    if (why.empty()) {
      SplitJob job = wanted;
      job.shards = json.at("shards");
      job.map = map_from(json.at("files"), job.inputs, wanted.options.record_limit);
      job.bad = json.at("bad").get<std::vector<Json>>();
      if (const Json& buckets = json.at("buckets"); !buckets.is_null())
        job.buckets = Buckets{buckets.at("shards_per_unit"), buckets.at("buckets_per_unit"),
                              buckets.at("bytes").get<std::vector<uint64_t>>()};
      return job;
    }
  } catch (const Json::exception&) {
    throw Error(Category::io_error,
                "is not the job file of a split, or is damaged; check --out and --name; if they are right, choose "
                "another --name, or remove this file and the shards of this split",
                Place::of_file(path));
  } catch (const std::out_of_range&) {
    throw Error(
        Category::io_error,
        "is a damaged job file of a split; check --out and --name; if they are right, choose another --name, or remove "
        "this file and the shards of this split",
        Place::of_file(path));
  }
  throw Error(Category::bad_pipeline,
              fmt::format("the folder holds shards of another split: {}; choose another --out or --name", why),
              Place::of_file(path));
}

}  // namespace feedline::cli
