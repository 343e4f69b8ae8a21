#include "tool/reshard/split_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "base/base64.h"
#include "base/format_count.h"
#include "base/mul_div.h"
#include "io/file.h"
#include "tool/common/text_file.h"

namespace feedline::tool {
namespace {

constexpr uint64_t format_version = 1;

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
Json path_json(const std::string& path) {
  return is_utf8(path) ? Json(path) : Json("hex " + hexadecimal(std::as_bytes(std::span(path))));
}

Json inputs_json(const std::vector<FileIdentity>& inputs) {
  Json list = Json::array();
  for (const FileIdentity& file : inputs)
    list.push_back({{"path", path_json(file.path)}, {"size", file.size}, {"mtime_ns", file.version}});
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

/// Returns a number of the job's file. Throws Json::exception if it is not an unsigned 64-bit integer; save_job()
/// writes only such numbers.
uint64_t number_from(const Json& json) { return json.get_ref<const uint64_t&>(); }

std::vector<uint64_t> numbers_from(const Json& list) {
  std::vector<uint64_t> numbers;
  for (const Json& number : list) numbers.push_back(number_from(number));
  return numbers;
}

RecordMap map_from(const Json& list, const std::vector<FileIdentity>& inputs, uint64_t record_limit) {
  std::vector<MappedFile> files;
  for (const Json& entry : list) {
    MappedFile& file = files.emplace_back();
    file.identity = inputs.at(files.size() - 1);
    const uint64_t compression = number_from(entry.at("compression"));
    if (compression > static_cast<uint64_t>(Compression::zlib)) throw std::out_of_range("compression");
    file.compression = static_cast<Compression>(compression);
    file.records = number_from(entry.at("records"));
    file.payload_bytes = number_from(entry.at("payload_bytes"));
    for (const Json& mark : entry.at("marks")) file.marks.push_back({number_from(mark.at(0)), number_from(mark.at(1))});
    file.bad_offsets = numbers_from(entry.at("bad_offsets"));
  }
  return RecordMap(std::move(files), record_limit);
}

/// Returns whether counting the records of a file can have given this result. The check is needed because RecordCursor
/// relies on the result, and the job's file, from which it was read, may be damaged.
bool can_be(const MappedFile& file) {
  const bool is_plain = file.compression == Compression::none;
  io::IndexEntry next;  // the minimum offset and record number of the next mark
  for (const io::IndexEntry& mark : file.marks) {
    if (mark.record < next.record || mark.offset < next.offset || mark.record >= file.records) return false;
    if (is_plain && mark.offset >= file.identity.size) return false;
    next = {mark.offset + 1, mark.record + 1};
  }
  const bool begins = file.records == 0 ? file.marks.empty() : !file.marks.empty() && file.marks[0].record == 0;
  return begins && file.compression != Compression::automatic && std::ranges::is_sorted(file.bad_offsets) &&
         (!is_plain || file.framed_bytes() <= file.identity.size);
}

/// Returns whether a split can have written this job to its file. The check is needed because the job's file has no
/// checksum.
bool can_be(const SplitJob& job) {
  if (job.shards > most_shards || job.map.files().size() != job.inputs.size()) return false;
  uint64_t left = uint64_t{1} << 62;  // bytes that the remaining records may have, so that no sum overflows
  for (const MappedFile& file : job.map.files()) {
    if (file.payload_bytes > left || file.records > (left - file.payload_bytes) / io::frame_bytes) return false;
    if (!can_be(file)) return false;
    left -= file.framed_bytes();
  }
  if (job.shards != shards_of(job.options, job.map.framed_bytes())) return false;
  if (!job.buckets) return true;
  const auto& [shards, buckets, bytes] = *job.buckets;
  return shards >= 1 && buckets >= 1 && bytes.size() % buckets == 0 &&
         bytes.size() / buckets == div_up(job.shards, shards);
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
      return fmt::format("{} has changed since then", shown(inputs[i].at("path")));
  }
  if (were.size() != inputs.size())
    return fmt::format("there {} {}, and now there are {}", were.size() == 1 ? "was" : "were",
                       format_count(were.size(), "input"), inputs.size());
  return "";
}

}  // namespace

uint64_t shards_of(const SplitOptions& options, uint64_t framed_bytes) noexcept {
  return options.shards ? *options.shards : std::max<uint64_t>(div_up(framed_bytes, *options.shard_bytes), 1);
}

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
  write_text(path, text);
}

std::optional<SplitJob> load_job(const std::string& path, const SplitJob& wanted) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  const io::InputFile file(path);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  const auto refuse = [&](const char* what) {
    throw Error(Category::io_error,
                fmt::format("{}; check --out and --name; if both are right, choose a different --name, or remove this "
                            "file and the shards of its split",
                            what),
                Place::of_file(path));
  };
  std::string why;
  try {
    const Json json = parse_json(text);
    if (const uint64_t version = number_from(json.at("feedline split")); version != format_version)
      throw Error(
          Category::io_error,
          fmt::format("was written by a different version of feedline: the file has format {}, but this version reads "
                      "format {}; continue with the version that wrote the file, or choose a different --out or --name",
                      version, format_version),
          Place::of_file(path));
    why = difference(json, wanted);
    if (why.empty()) {
      SplitJob job = wanted;
      job.shards = number_from(json.at("shards"));
      job.map = map_from(json.at("files"), job.inputs, wanted.options.record_limit);
      job.bad = json.at("bad").get<std::vector<Json>>();
      if (const Json& buckets = json.at("buckets"); !buckets.is_null())
        job.buckets = Buckets{number_from(buckets.at("shards_per_unit")), number_from(buckets.at("buckets_per_unit")),
                              numbers_from(buckets.at("bytes"))};
      if (can_be(job)) return job;
      refuse("is a damaged job file of a split");
    }
  } catch (const Json::exception&) {
    refuse("is not the job file of a split, or is damaged");
  } catch (const std::out_of_range&) {
    refuse("is a damaged job file of a split");
  } catch (const Error& error) {
    throw error.at(Place::of_file(path));
  }
  throw Error(Category::bad_pipeline,
              fmt::format("the folder holds shards of a different split: {}; choose a different --out or --name", why),
              Place::of_file(path));
}

}  // namespace feedline::tool
