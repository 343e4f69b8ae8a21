#include "flowgraph/data_set.h"

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for_each.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "io/count_records.h"

namespace feedline::flow {
namespace {

// Drops what the policy leaves out, and says what it was. Returns false where the data ends: RAISE met an error.
bool apply_policy(OnError on_error, DataFile& file, DataSet& data) {
  io::FileIndex& index = file.index;
  if (index.bad.empty()) return true;
  switch (on_error) {
    case OnError::skip_record:
      for (const io::BadRegion& region : index.bad) data.skipped.push_back(region.error);
      return true;
    case OnError::skip_file:
      data.skipped.push_back(index.bad.front().error);
      index = {};
      return true;
    case OnError::raise:
      break;
  }
  const io::BadRegion first = index.bad.front();
  data.raised.push_back(first.error);
  index.bad.clear();
  index.records = first.record;
  index.end = first.offset;
  std::vector<io::IndexEntry> entries;
  for (const io::IndexEntry& entry : index.entries)
    if (entry.record < first.record) entries.push_back(entry);
  entries.push_back({first.offset, first.record});
  index.entries = std::move(entries);
  return false;
}

void check_failures(const PipelineSpec& spec, const DataSet& data) {
  const auto failures = static_cast<int64_t>(data.skipped.size());
  if (failures == 0) return;
  const double rate = static_cast<double>(failures) / static_cast<double>(data.records + data.skipped.size());
  const std::string first = data.skipped.front().what();
  if (spec.max_failures >= 0 && failures > spec.max_failures)
    throw Error(data.skipped.front().category(),
                fmt::format("{} failures while counting, errors.max_failures allows {}; the first: {}", failures,
                            spec.max_failures, first));
  if (rate > spec.max_failure_rate)
    throw Error(data.skipped.front().category(),
                fmt::format("{:.3g} of the records are bad, errors.max_failure_rate allows {:.3g}; the first: {}", rate,
                            spec.max_failure_rate, first));
}

}  // namespace

DataSet count_data(const PipelineSpec& spec, int threads,
                   const std::function<void(uint64_t done, uint64_t total)>& on_progress) {
  const auto start = std::chrono::steady_clock::now();
  DataSet data;
  for (uint32_t s = 0; s < spec.sources.size(); s++)
    for (const std::string& path : spec.sources[s].files) {
      data.files.push_back({.id = io::stat_file(path), .source = s, .index = {}, .first_record = 0});
      data.bytes += data.files.back().id.size;
    }

  std::mutex mutex;
  uint64_t done = 0;
  const auto progress = [&](uint64_t bytes) {
    const std::lock_guard lock(mutex);
    done += bytes;
    if (on_progress) on_progress(done, data.bytes);
  };
  tbb::task_arena arena(threads);
  arena.execute([&] {
    tbb::parallel_for_each(data.files, [&](DataFile& file) {
      const SourceSpec& source = spec.sources[file.source];
      file.index = io::count_records(
          file.id.uri,
          {.compression = source.compression, .record_limit = source.record_limit, .stride = io::default_stride},
          progress);
    });
  });

  std::vector<uint64_t> records_of_source(spec.sources.size());
  for (size_t f = 0; f < data.files.size(); f++) {
    DataFile& file = data.files[f];
    const bool goes_on = apply_policy(spec.on_error, file, data);
    file.first_record = records_of_source[file.source];
    records_of_source[file.source] += file.index.records;
    data.records += file.index.records;
    if (!goes_on) {
      for (size_t rest = f + 1; rest < data.files.size(); rest++) data.files[rest].index = {};
      break;
    }
  }
  check_failures(spec, data);
  data.count_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return data;
}

}  // namespace feedline::flow
