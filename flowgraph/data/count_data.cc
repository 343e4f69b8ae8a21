#include "flowgraph/data/count_data.h"

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/audit.h"
#include "base/format_count.h"
#include "base/worker_arena.h"
#include "flowgraph/data/compare_ranks.h"
#include "flowgraph/data/dataset_info.h"
#include "flowgraph/data/error_limits.h"
#include "flowgraph/data/index_files.h"
#include "flowgraph/pipeline/unsupported.h"
#include "io/read/source.h"
#include "io/records/record_scanner.h"
#include "io/records/record_stream.h"
#include "ranks/rank_group.h"

namespace feedline::flow {
namespace {

// Leaves out what is known to be bad: with SKIP_RECORD every bad region, with SKIP_FILE every file that has a bad
// region.
void leave_out(OnError on_error, DataFile& file, DataSet& data) {
  if (on_error == OnError::skip_record) {
    for (const io::BadRegion& region : file.index.bad) data.skip(region.error(file.id.uri));
  } else if (on_error == OnError::skip_file && !file.index.bad.empty()) {
    data.skip(file.index.bad.front().error(file.id.uri));
    // Such a file has no records, but keeps the stride of its source, because shuffle.block_size is compared with the
    // stride of every file.
    const uint64_t stride = file.index.stride;
    file.index = {};
    file.index.stride = stride;
    file.left_out = true;
  }
}

// Returns what is known of a file that has not been counted: its compression, and the maximum size of a record, in
// bytes. The size is what the source and io::RecordScanner allow. In a plain file it is also at most the file's size
// less the frame of one record.
io::FileIndex not_counted(const SourceSpec& spec, const io::FileId& file) {
  io::FileIndex index;
  index.compression = spec.compression;
  if (spec.compression == Compression::automatic)
    index.compression = io::RecordStream(file.uri, spec.compression, spec.record_limit).compression();
  index.largest_record = std::min<uint64_t>(spec.record_limit, UINT32_MAX);
  if (index.compression == Compression::none)
    index.largest_record = std::min(index.largest_record, file.size - std::min<uint64_t>(file.size, io::frame_bytes));
  return index;
}

// Removes each file that is a link to an earlier file of the same source, so that the source feeds the file once, under
// its first name.
void feed_once(const PipelineSpec& spec, DataSet& data) {
  const auto which = [&](size_t f) {
    const DataFile& file = data.files[f];
    // Device and inode are not enough, because some file systems give different files the same number.
    return std::tuple(file.source, file.id.device, file.id.inode, file.id.size, file.id.version);
  };
  std::vector<size_t> files(data.files.size());
  std::iota(files.begin(), files.end(), size_t{0});
  std::stable_sort(files.begin(), files.end(), [&](size_t a, size_t b) { return which(a) < which(b); });
  std::map<size_t, size_t> again;  // from the file's number under a later name to its number under the first name
  for (size_t i = 1, first = 0; i < files.size(); i++) {
    if (which(files[i]) != which(files[first]) || data.files[files[i]].id.inode == 0)
      first = i;
    else
      again.emplace(files[i], files[first]);
  }
  if (again.empty()) return;
  const auto& [second, first] = *again.begin();
  data.warnings.push_back(
      fmt::format("{}.files: '{}' and '{}' are two names of one file, which is fed only once{}",
                  element_path("source", static_cast<int>(data.files[second].source),
                               static_cast<int>(spec.sources.size()), spec.sources[data.files[second].source].name),
                  data.files[first].id.uri, data.files[second].id.uri,
                  again.size() > 1 ? fmt::format(" (and {})", format_count(again.size() - 1, "more such name")) : ""));
  auto kept = data.files.begin();
  for (size_t f = 0; f < data.files.size(); f++)
    if (!again.contains(f)) std::swap(*kept++, data.files[f]);
  data.files.erase(kept, data.files.end());
}

void check_failures(const PipelineSpec& spec, const DataSet& data) {
  const uint64_t failures = data.skipped_total;
  if (failures == 0) return;
  auto limit = exceeds_max_failures(spec, failures);
  if (!limit)
    limit = spec.on_error == OnError::skip_file
                ? exceeds_failure_rate(spec, failures, data.files.size(), "files")
                : exceeds_failure_rate(spec, failures, data.records + failures, "records");
  if (limit) {
    const Error& first = data.skipped.front();
    throw Error(first.category(), fmt::format("{}; the first: {}", *limit, first.what()));
  }
}

uint64_t digest_of(const DataSet& data) noexcept {
  uint64_t digest = 0;
  const auto add = [&](uint64_t value) { digest = mix64(digest ^ mix64(value)); };
  for (const DataFile& file : data.files) {
    add(file.source);
    add(hash64(file.name()));
    add(file.id.size);
    add(file.index.records);
    add(file.index.audit);
  }
  return digest;
}

// Completes data whose indexes are known: digest, warnings, what is left out, and samples. Throws Error if too much is
// bad.
void settle(const PipelineSpec& spec, DataSet& data) {
  data.digest = digest_of(data);
  for (std::string& warning : check_dataset_info(data.files)) data.warnings.push_back(std::move(warning));
  for (DataFile& file : data.files) {
    leave_out(spec.on_error, file, data);
    data.records += file.index.records;
  }
  choose_samples(spec, data);
  check_failures(spec, data);
}

}  // namespace

DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress, RankGroup& ranks) {
  const auto start = std::chrono::steady_clock::now();
  DataSet data;
  for (uint32_t s = 0; s < spec.sources.size(); s++)
    for (const std::string& path : spec.sources[s].files)
      data.files.push_back({.id = {path}, .source = s, .index = {}, .first_record = 0, .samples = {}});
  WorkerArena arena(threads, spec.cpu_set);
  arena.execute([&] {
    tbb::parallel_for(size_t{0}, data.files.size(),
                      [&](size_t f) { data.files[f].id = io::all_files().stat(data.files[f].id.uri); });
  });
  feed_once(spec, data);
  for (const DataFile& file : data.files) data.bytes += file.id.size;
  compare_files(ranks, data);
  index_files(spec, data, arena, ranks, on_progress);
  if (data.lazy) {
    arena.execute([&] {
      tbb::parallel_for(size_t{0}, data.files.size(), [&](size_t f) {
        data.files[f].index = not_counted(spec.sources[data.files[f].source], data.files[f].id);
      });
    });
  } else {
    settle(spec, data);
  }
  data.count_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return data;
}

DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress) {
  RankGroup alone;
  return count_data(spec, threads, on_progress, alone);
}

DataSet counted_data(const PipelineSpec& spec, DataSet data, std::vector<io::FileIndex> indexes) {
  data.lazy = false;
  for (size_t f = 0; f < data.files.size(); f++) data.files[f].index = std::move(indexes[f]);
  settle(spec, data);
  return data;
}

}  // namespace feedline::flow
