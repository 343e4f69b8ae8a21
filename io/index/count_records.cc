#include "io/index/count_records.h"

#include <fmt/format.h>
#include <oneapi/tbb/parallel_pipeline.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "io/file.h"
#include "io/index/index_builder.h"
#include "io/index/index_check.h"
#include "io/records/record_stream.h"
#include "io/records/resync.h"

namespace feedline::io {
namespace {

// Returns how many of the stream's current records begin before `offset`.
size_t count_before(const RecordStream& stream, uint64_t offset) {
  const auto records = stream.records();
  const auto place = [&](const RecordView& record) {
    return stream.offset() + static_cast<uint64_t>(record.data - records.front().data);
  };
  if (place(records.back()) < offset) return records.size();
  const auto found =
      std::partition_point(records.begin(), records.end(), [&](const RecordView& r) { return place(r) < offset; });
  return static_cast<size_t>(found - records.begin());
}

// Reports the progress over the bytes [begin, end) of a file: each byte once.
class Teller {
 public:
  Teller(const CountProgress& tell, uint64_t begin, uint64_t end) : tell_(tell), told_(begin), end_(end) {}
  /// Reports the bytes before `position` that were not reported yet.
  void at(uint64_t position) {
    position = std::min(position, end_);
    if (position <= told_) return;
    const uint64_t more = position - std::exchange(told_, position);
    if (tell_) tell_(more);
  }

 private:
  const CountProgress& tell_;
  uint64_t told_;
  const uint64_t end_;
};

// Scans the true records of the file from its start on, which are those that do not lie inside the payload of another
// record. This is the stitch (see count_records.h) or, if one thread counts alone, the whole scan.
class TrueScan {
 public:
  TrueScan(const std::shared_ptr<const SourceFile>& file, const CountOptions& options, const CountDamage& damage)
      : path_(file->path()),
        tell_damage_(damage),
        stream_(file, options.compression, options.record_limit),
        builder_(options.stride) {
    if (stream_.compression() == Compression::none) return;
    stream_.find_seek_points(seek_spacing(options.stride),
                             [this](const SeekPoint& point, auto window) { return seek_points_.add(point, window); });
  }

  const RecordStream& stream() const noexcept { return stream_; }

  /// Continues to the first record that begins at or after `offset`, or to the end.
  void advance(uint64_t offset, Teller* teller) {
    while (at_ < offset && !ended_) {
      switch (stream_.next()) {
        case RecordStream::Found::end:
          ended_ = true;
          break;
        case RecordStream::Found::damage:
          check_bad_regions(bad_.size(), stream_.damage(), path_);
          if (tell_damage_) tell_damage_(stream_.damage());
          bad_.push_back(stream_.damage());
          if (bad_.size() > kept_messages) bad_.back().message = {};
          at_ = bad_.back().offset + bad_.back().length;
          break;
        case RecordStream::Found::records: {
          const auto records = stream_.records();
          const size_t count = count_before(stream_, offset);
          builder_.add(stream_.offset(), records.first(count));
          at_ = builder_.end();
          if (count < records.size()) stream_.go_on_at(at_, builder_.records());
          break;
        }
      }
      if (teller) teller->at(stream_.position());
    }
  }

  /// Takes over the records of `chain` from the first place on at which both a record of the chain and a true record
  /// begin, if there is such a place. Reports no progress for the bytes that this function reads, because the thread
  /// that found the chain has reported them.
  void meet(const IndexBuilder& chain) {
    if (chain.end() <= at_) return;
    advance(chain.start(), nullptr);
    std::optional<IndexBuilder::Meeting> place = IndexBuilder::Meeting{chain.start(), 0};
    while (place && place->offset != at_) {
      place = chain.meeting(at_);
      if (place) advance(place->offset, nullptr);
    }
    if (!place || ended_) return;
    builder_.append(chain, *place);
    at_ = chain.end();
    stream_.go_on_at(at_, builder_.records());
  }

  FileIndex finish(Teller* teller = nullptr) {
    advance(UINT64_MAX, teller);
    FileIndex index = builder_.finish(stream_.stream_size());
    index.compression = stream_.compression();
    index.bad = std::move(bad_);
    index.seek_points = seek_points_.take_entries();
    index.windows = seek_points_.take_windows();
    return index;
  }

 private:
  const std::string& path_;
  const CountDamage& tell_damage_;
  RecordStream stream_;
  IndexBuilder builder_;
  SeekPointList seek_points_;
  std::vector<BadRegion> bad_;
  uint64_t at_ = 0;  // the offset up to which the true records have been followed
  bool ended_ = false;
};

struct Range {
  uint64_t begin, end;
  std::vector<IndexBuilder> chains;  // ascending, disjoint
};

// Finds the chains of valid records that begin in the range, and stores them in range.chains.
void scan(Range& range, const std::shared_ptr<const SourceFile>& file, const CountOptions& options,
          const CountProgress& progress) {
  constexpr size_t most_chains = 64;
  const uint64_t allowance = 2 * (range.end - range.begin) + (uint64_t{16} << 20);
  uint64_t in_vain = 0;  // bytes read for candidates that turned out not to be records
  RecordStream stream(file, RecordStream::Chain{}, options.record_limit);
  Resync search([&](uint64_t offset, std::span<std::byte> into) { file->read_at(offset, into); }, file->size(),
                options.record_limit);
  Teller teller(progress, range.begin, range.end);
  for (uint64_t place = range.begin; place < range.end && in_vain <= allowance && range.chains.size() < most_chains;) {
    const auto candidate = search.candidate(place, range.end);
    if (!candidate) break;
    stream.go_on_at(candidate->offset, 0);
    IndexBuilder chain(options.stride, candidate->offset);
    while (chain.end() < range.end && stream.next() == RecordStream::Found::records) {
      chain.add(stream.offset(), stream.records().first(count_before(stream, range.end)));
      teller.at(chain.end());
    }
    place = chain.end() + 1;  // no valid record begins at chain.end(), or the range is done
    if (chain.records() == 0) {
      in_vain += candidate->size;
    } else {
      if (chain.end() < range.end) in_vain += stream.position() - chain.end();
      range.chains.push_back(std::move(chain));
    }
  }
  teller.at(range.end);
}

// Returns the size of a range, chosen so that each thread gets several ranges. A range costs a few buffers and, on
// average, half a record that is read twice. Ranges are so large that this cost does not matter.
uint64_t range_bytes_of(uint64_t size, const CountOptions& options) {
  if (options.range_bytes) return options.range_bytes;
  const auto threads = static_cast<uint64_t>(tbb::this_task_arena::max_concurrency());
  return std::clamp<uint64_t>(size / (16 * threads), uint64_t{16} << 20, uint64_t{128} << 20);
}

// Scans [begin, end) and gives the chains to `take`, in order. Only a few ranges are under way at a time. So all
// threads read in one part of the file, and their chains do not wait long until `take` gets them.
void scan_ranges(const std::shared_ptr<const SourceFile>& file, uint64_t begin, uint64_t end, uint64_t range_bytes,
                 const CountOptions& options, const CountProgress& progress,
                 const std::function<void(IndexBuilder&)>& take) {
  const auto at_a_time = 2 * static_cast<size_t>(tbb::this_task_arena::max_concurrency());
  // The filters pass pointers to one another, because oneTBB leaks larger objects if a filter throws. The last filter
  // handles the ranges in order. So it is done with the Range that the first filter uses again, which was begun
  // `at_a_time` ranges ago.
  std::vector<Range> ranges(at_a_time);
  uint64_t next = begin;
  size_t begun = 0;
  tbb::parallel_pipeline(
      at_a_time,
      tbb::make_filter<void, Range*>(tbb::filter_mode::serial_in_order, [&](tbb::flow_control& control) -> Range* {
        if (next >= end) {
          control.stop();
          return nullptr;
        }
        const uint64_t from = std::exchange(next, std::min(next + range_bytes, end));
        Range& range = ranges[begun++ % at_a_time];
        range = {from, next, {}};
        return &range;
      }) & tbb::make_filter<Range*, Range*>(tbb::filter_mode::parallel, [&](Range* range) {
        scan(*range, file, options, progress);
        return range;
      }) & tbb::make_filter<Range*, void>(tbb::filter_mode::serial_in_order, [&](Range* range) {
        for (IndexBuilder& chain : range->chains) take(chain);
      }));
}

}  // namespace

FileIndex count_records(const std::shared_ptr<const SourceFile>& file, const CountOptions& options,
                        const CountProgress& progress, const CountDamage& damage) {
  TrueScan truth(file, options, damage);
  const uint64_t range_bytes = range_bytes_of(file->size(), options);
  const bool together = truth.stream().compression() == Compression::none && file->size() >= 2 * range_bytes &&
                        (tbb::this_task_arena::max_concurrency() > 1 || options.range_bytes);
  if (!together) {
    Teller teller(progress, 0, file->size());
    return truth.finish(&teller);
  }
  scan_ranges(file, 0, file->size(), range_bytes, options, progress,
              [&](const IndexBuilder& chain) { truth.meet(chain); });
  return truth.finish();
}

std::vector<IndexBuilder> count_part(const std::shared_ptr<const SourceFile>& file, uint64_t begin, uint64_t end,
                                     const CountOptions& options, const CountProgress& progress) {
  std::vector<IndexBuilder> chains;
  scan_ranges(file, begin, std::min(end, file->size()), range_bytes_of(end - begin, options), options, progress,
              [&](IndexBuilder& chain) { chains.push_back(std::move(chain)); });
  return chains;
}

FileIndex join_parts(const std::shared_ptr<const SourceFile>& file, const std::vector<IndexBuilder>& chains,
                     const CountOptions& options, const CountDamage& damage) {
  CountOptions plain = options;
  plain.compression = Compression::none;
  TrueScan truth(file, plain, damage);
  for (const IndexBuilder& chain : chains) truth.meet(chain);
  FileIndex index = truth.finish();
  if (const std::string why = contradiction(index, file->size(), options.record_limit); !why.empty())
    throw Error(Category::bad_pipeline,
                fmt::format("the index that was put together from the counts of all ranks {}; all ranks must read the "
                            "same file with the same version of feedline",
                            why),
                Place::of_file(file->path()));
  return index;
}

void check_bad_regions(size_t known, const BadRegion& next, const std::string& path) {
  if (known < most_bad_regions) return;
  throw Error(
      next.category,
      fmt::format("the file has more than {} damaged places; leave out this file, or copy its good records to a new "
                  "file by RecordReader and RecordWriter",
                  most_bad_regions),
      {path, static_cast<int64_t>(next.offset), static_cast<int64_t>(next.record), ""});
}

}  // namespace feedline::io
