// feedline index: makes the indexes that a feed looks for, or checks them. An index says where the records of its file
// are.
#include <fmt/format.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "base/byte_size.h"
#include "io/index/index_store.h"
#include "io/read/source.h"
#include "tool/commands/commands.h"
#include "tool/commands/file_flags.h"
#include "tool/commands/flags.h"
#include "tool/common/files.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

struct IndexArgs {
  FileArgs input;
  std::string dir;
  uint64_t stride = io::default_stride;
  bool check = false, json = false;
};

struct Indexed {
  FileSummary summary;
  std::string index;       // the path of the index; empty: there is none
  std::string_view state;  // "valid": the index was found; "built": this command made it; "none": there is none
  std::string refused;     // why an existing index was refused
  std::string wrong;       // with --check: how the index differs from the data
  std::string unwritten;   // why an index could not be written
  uint64_t index_bytes = 0;
};

/// Returns whether two indexes have the same seek points, with the same windows.
bool same_seek_points(const io::FileIndex& index, const io::FileIndex& counted) {
  constexpr auto point = &io::SeekEntry::point;
  if (!std::ranges::equal(index.seek_points, counted.seek_points, {}, point, point)) return false;
  std::array<std::byte, io::deflate_window> one{}, other{};
  for (size_t number = 1; number <= index.seek_points.size(); number++) {
    const size_t size = io::window_size(index.seek_points[number - 1].point);
    if (!io::inflate_window(index.window_of(number), size, one) ||
        !io::inflate_window(counted.window_of(number), size, other) || std::memcmp(one.data(), other.data(), size) != 0)
      return false;
  }
  return true;
}

/// Compares an index with a new count of the file, and returns how they differ; empty: they agree.
std::string differs(const io::FileIndex& index, const io::FileIndex& counted) {
  std::string how;
  if (index.records != counted.records || index.audit != counted.audit)
    how = fmt::format(
        "the index says {} with the audit {:016x} (a sum of the hashes of all records), but the file has {} with the "
        "audit {:016x}",
        format_count(index.records, "record"), index.audit, format_count(counted.records), counted.audit);
  else if (index.end != counted.end || !std::ranges::equal(index.entries, counted.entries))
    how = "the index has the records of the file, but other places for them";
  else if (!same_seek_points(index, counted))
    how = "the index has other places from which the compressed file is inflated";
  return how.empty() ? "" : how + "; remove the index, and make a new index with `feedline index`";
}

void index_file(const IndexArgs& args, const std::string& path, Indexed& result, Progress& progress) {
  const io::CountOptions options{
      .compression = args.input.compression, .record_limit = args.input.record_limit, .stride = args.stride};
  const io::FileId data = io::all_files().stat(path);
  result.summary.size = data.size;
  const auto count = [&] { return io::count_records(path, options, [&](uint64_t bytes) { progress.add(bytes); }); };
  io::KeptIndex kept = io::find_index(data, options, args.dir);
  result.index = kept.path;
  result.state = kept.index ? "valid" : "none";
  if (!kept.index && kept.refused) result.refused = kept.why;
  if (args.check) {
    const io::FileIndex counted = count();
    result.wrong = kept.index ? differs(*kept.index, counted) : kept.why;
    kept.index = counted;
  } else if (kept.index) {
    progress.add(data.size);
  } else {
    io::let_mtime_settle(data);
    kept.index = count();
  }
  result.summary.take(*kept.index);
  if (result.state == "none" && !args.check) {
    try {
      result.index = io::keep_index(*kept.index, data, io::all_files().stat(path), options, args.dir);
      result.state = "built";
    } catch (const Error& error) {
      result.unwritten = error.what();
    }
  }
  if (!result.index.empty()) result.index_bytes = size_of({result.index});
}

Json indexed_json(const Indexed& result) {
  Json json = to_json(result.summary);
  json["index"] = result.index.empty() ? Json() : Json(result.index);
  json["index_bytes"] = result.index_bytes;
  json["state"] = result.state;
  json["refused"] = result.refused.empty() ? Json() : Json(result.refused);
  json["unwritten"] = result.unwritten.empty() ? Json() : Json(result.unwritten);
  json["wrong"] = result.wrong.empty() ? Json() : Json(result.wrong);
  return json;
}

int index(const IndexArgs& args) {
  std::vector<Indexed> results(args.input.files.size());
  Progress progress(args.check ? "checking" : "indexing", size_of(args.input.files));
  if (!args.check) io::remove_unfinished_indexes(args.input.files, args.dir);
  tbb::parallel_for(size_t{0}, results.size(), [&](size_t i) {
    results[i].summary.file = args.input.files[i];
    results[i].state = "none";
    try {
      index_file(args, args.input.files[i], results[i], progress);
    } catch (const Error& error) {  // reading the file failed
      results[i].summary.damage.push_back({error, 0});
    }
  });
  progress.done();

  std::vector<FileSummary> summaries;
  for (const Indexed& result : results) summaries.push_back(result.summary);
  bool sound = print_damage(summaries) == 0;
  Json files = Json::array();
  for (const Indexed& result : results) {
    if (!result.wrong.empty()) print_error("{}: {}", result.summary.file, result.wrong);
    if (!result.unwritten.empty())
      print_error("{}: {}the index could not be written: {}", result.summary.file,
                  result.summary.damage.empty() ? "the file is sound, " : "", result.unwritten);
    sound &= result.wrong.empty() && result.unwritten.empty();
    if (args.json) {
      files.push_back(indexed_json(result));
      continue;
    }
    print_line("{}", describe(result.summary));
    if (result.state == "built" && !result.refused.empty()) print_line("  counted again, because {}", result.refused);
    if (!result.index.empty())
      print_line("  {} {}, {}", result.state == "built" ? "built" : "index", result.index,
                 format_byte_size(result.index_bytes));
  }
  if (args.json) print_document({{"files", std::move(files)}});
  return sound ? 0 : 1;
}

}  // namespace

void add_index(CLI::App& app, Run& run) {
  const auto [command, args] = add_command(
      app, run, "index", "make the indexes of TFRecord files in advance; a feed also makes missing indexes", index);
  add_file_args(command, args.input);
  add_option(command, "--dir DIR", args.dir,
             "folder for the indexes, as a pipeline's index.dir (default: beside each file)");
  add_size(command, "--stride", args.stride,
           fmt::format("bytes of the file between two entries of its index, as a pipeline's index.stride (default: {})",
                       format_byte_size(args.stride)),
           io::smallest_stride, io::largest_stride);
  command.add_flag(
      "--check", args.check,
      "write nothing; compare the indexes with the files; the exit code is 1 if an index is missing or wrong");
  command.add_flag("--json", args.json, "print the result as JSON");
}

}  // namespace feedline::tool
