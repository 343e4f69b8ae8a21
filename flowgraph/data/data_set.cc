#include "flowgraph/data/data_set.h"

#include <algorithm>

#include "base/audit.h"
#include "base/mul_div.h"

namespace feedline::flow {
namespace {

uint64_t place_of(const RangeEnd& end, uint64_t records) noexcept {
  return end.percent ? mul_div(records, end.value, RangeEnd::all) : std::min(end.value, records);
}

// The chosen part of a source: its good records with the numbers [begin, end).
struct Chosen {
  uint64_t records = 0;  // good records in the whole source
  uint64_t begin = 0, end = 0;
  /// Returns whether an error that comes after `record` good records of the source lies in the chosen part.
  bool reaches(uint64_t record) const noexcept {
    return record >= begin && (record < end || (record == end && end == records));
  }
};

Chosen choose(const SourceSpec& source, uint64_t records) noexcept {
  const uint64_t begin = place_of(source.begin, records), end = std::max(begin, place_of(source.end, records));
  const auto cut = [&](uint32_t shard) { return begin + mul_div(end - begin, shard, source.num_shards); };
  return {records, cut(source.shard_id), cut(source.shard_id + 1)};
}

// With RAISE: ends the samples at the first bad region that lies in the chosen part of its source.
void end_at_error(const std::vector<Chosen>& chosen, DataSet& data) {
  for (size_t f = 0; f < data.files.size(); f++) {
    DataFile& file = data.files[f];
    for (const io::BadRegion& region : file.index.bad) {
      if (!chosen[file.source].reaches(file.first_record + region.record)) continue;
      data.raised.push_back(region.error(file.id.uri));
      file.samples.end_at(region.record);
      for (size_t rest = f + 1; rest < data.files.size(); rest++) data.files[rest].samples = {};
      return;
    }
  }
}

}  // namespace

uint64_t DataSet::largest_record(FileRange range) const noexcept {
  uint64_t largest = 0;
  for (const DataFile& file : in(range)) largest = std::max(largest, file.index.largest_record);
  return largest;
}

FileRange DataSet::files_of(uint32_t number) const noexcept {
  FileRange range;
  while (range.first < files.size() && files[range.first].source < number) range.first++;
  range.last = range.first;
  while (range.last < files.size() && files[range.last].source == number) range.last++;
  return range;
}

std::vector<uint64_t> audit_keys(std::span<const DataFile> files) {
  std::vector<uint64_t> keys, files_of_source;
  for (const DataFile& file : files) {
    if (files_of_source.size() <= file.source) files_of_source.resize(file.source + 1);
    keys.push_back(audit_key(file.source, files_of_source[file.source]++));
  }
  return keys;
}

void choose_samples(const PipelineSpec& spec, DataSet& data) {
  std::vector<uint64_t> records(spec.sources.size());
  for (DataFile& file : data.files) {
    file.first_record = records[file.source];
    records[file.source] += file.index.records;
  }
  std::vector<Chosen> chosen;
  for (size_t s = 0; s < spec.sources.size(); s++) chosen.push_back(choose(spec.sources[s], records[s]));
  for (DataFile& file : data.files) {
    const auto in_file = [&](uint64_t record) {
      return std::clamp(record, file.first_record, file.first_record + file.index.records) - file.first_record;
    };
    file.samples = Selection(in_file(chosen[file.source].begin), in_file(chosen[file.source].end));
  }
  if (spec.on_error == OnError::raise) end_at_error(chosen, data);
  data.samples = 0;
  for (const DataFile& file : data.files) data.samples += file.samples.samples();
}

}  // namespace feedline::flow
