#include "flowgraph/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/byte_size.h"
#include "base/format_count.h"
#include "base/mul_div.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/rows/cache_spec.h"

namespace feedline::flow {
namespace {

using Advice = std::optional<std::string>;

// A feed that does less than this in an epoch is finished so soon that advice is not worth reading.
constexpr uint64_t least_bytes = 64 << 20;
constexpr uint64_t least_files = 1000;
constexpr int64_t least_steps = 1000;

// For each sample, GLOBAL reads everything between two neighbouring entries of the index, and inflates a compressed file
// from the seek point before it.
Advice random_reads(const FeedFigures& feed) {
  constexpr uint64_t most_reads = 4;  // bytes read for each byte that is wanted
  const auto in_epoch = [&](uint64_t of_sample) {
    return static_cast<uint64_t>(std::min<Wide>(Wide{feed.samples} * of_sample, std::numeric_limits<uint64_t>::max()));
  };
  if (feed.shuffle != ShuffleMode::global || in_epoch(feed.read_bytes) < least_bytes) return {};
  if (feed.read_bytes < most_reads * feed.sample_bytes) return {};
  const std::string instead =
      feed.inflates ? "write plain files with `feedline split`"
                    : fmt::format("a smaller source.index.stride, such as \"{}\"",
                                  format_byte_size(std::max<uint64_t>(512, feed.sample_bytes / 512 * 512)));
  return fmt::format(
      "shuffle.mode: GLOBAL {} {} for each sample of {}, which is {} in an epoch of {} of data; use shuffle.mode: "
      "BLOCK, or {}",
      feed.inflates ? "inflates" : "reads", format_byte_size(feed.read_bytes), format_byte_size(feed.sample_bytes),
      format_byte_size(in_epoch(feed.read_bytes)), format_byte_size(in_epoch(feed.sample_bytes)), instead);
}

// A section of a file, between two seek points, is inflated by one thread.
Advice one_inflater(const FeedFigures& feed) {
  if (feed.inflated_bytes < least_bytes || feed.threads < 2 || feed.keeps_records) return {};
  return fmt::format(
      "compressed files that inflate to {} have hardly any places from which they can be inflated, so only one of the "
      "{} threads of the feed inflates at a time; write them anew with `feedline split`, or keep the records in a "
      "cache {{ what: RECORDS }}",
      format_byte_size(feed.inflated_bytes), feed.threads);
}

// Opening a file takes as long as feeding 40 KB of it.
Advice small_files(const FeedFigures& feed) {
  constexpr uint64_t least_file_bytes = 64 << 10;
  if (feed.files < least_files || feed.file_bytes / feed.files >= least_file_bytes) return {};
  return fmt::format(
      "the {} have {} each, and opening a file takes as long as feeding 40 KB of it; write fewer and larger files with "
      "`feedline split --shard-size 150MB`",
      format_count(feed.files, "file"), format_byte_size(feed.file_bytes / feed.files));
}

// Handing over a batch takes as long as making 16 KiB of records and tensors.
Advice small_batches(const FeedFigures& feed) {
  constexpr uint64_t least_batch_bytes = 16 << 10;
  if (feed.steps < least_steps || feed.costly_rows || feed.batch_bytes == 0 || feed.batch_bytes >= least_batch_bytes)
    return {};
  return fmt::format(
      "a replica's batch of {} has {} of records and tensors together, and handing over a batch takes as long as "
      "making 16 KiB of them; with {} rows or more in a batch, each row takes less time",
      format_count(feed.batch_rows, "row"), format_byte_size(feed.batch_bytes),
      format_count(feed.batch_rows * least_batch_bytes / std::max<uint64_t>(1, feed.batch_bytes) + 1));
}

// If few batches are prefetched, a thread is woken for each of them.
Advice few_batches_ahead(const FeedFigures& feed) {
  constexpr uint64_t enough = 8;
  if (feed.steps < least_steps || feed.host_prefetch == 0 || feed.batches >= enough) return {};
  if (feed.batches_if_unset < enough) return {};
  return fmt::format(
      "parallelism.host_prefetch: {} makes a thread of the feed sleep and wake for every batch or two, if the trainer "
      "is slower than the feed; remove parallelism.host_prefetch, and {} of these small batches are made at a time",
      feed.host_prefetch, feed.batches_if_unset);
}

constexpr Advice (*rules[])(const FeedFigures&) = {random_reads, one_inflater, small_files, small_batches,
                                                   few_batches_ahead};

// Returns how many bytes GLOBAL reads, or inflates, for all records of a file. Each record is read by itself, and a read
// takes all bytes between two entries of the index, and in a compressed file those from the seek point before them.
uint64_t read_one_by_one(const io::FileIndex& index) {
  uint64_t bytes = 0;
  for (size_t i = 0; i + 1 < index.entries.size(); i++) {
    const io::IndexEntry &from = index.entries[i], &to = index.entries[i + 1];
    uint64_t begin = from.offset;
    if (index.compression != Compression::none) {
      const size_t number = index.seek_point_before(begin);
      begin = number == 0 ? 0 : index.seek_points[number - 1].point.offset;
    }
    bytes += (to.record - from.record) * (to.offset - begin);
  }
  return bytes;
}

}  // namespace

FeedFigures figures_of(const Plan& plan) {
  const PipelineSpec& spec = plan.spec;
  FeedFigures feed{.shuffle = spec.shuffle.mode,
                   .samples = plan.data.samples,
                   .files = plan.data.files.size(),
                   .file_bytes = plan.data.bytes,
                   .keeps_records = spec.cache && spec.cache->what == CacheWhat::records,
                   .threads = plan.threads,
                   .steps = plan.steps_per_epoch,
                   .batch_rows = static_cast<uint64_t>(plan.replica_batch * plan.frames),
                   .costly_rows = spec.rows_can_fail(),
                   .host_prefetch = spec.more_small_batches ? 0 : spec.host_prefetch,
                   .batches = plan.memory.buffers_per_replica,
                   .batches_if_unset = plan.memory.lends ? plan.memory.buffers_per_replica
                                                         : most_batches_ahead(plan.memory.buffer_bytes)};
  uint64_t records = 0, payload = 0, read = 0;
  for (const DataFile& file : plan.data.files) {
    records += file.index.records;
    payload += file.index.payload_bytes;
    if (feed.shuffle == ShuffleMode::global) read += read_one_by_one(file.index);
    feed.inflates |= file.compressed();
    if (longest_section(file.index) > most_of_section(file.index.stride)) feed.inflated_bytes += file.index.stream_size;
  }
  if (records == 0) return feed;
  const auto frames = static_cast<uint64_t>(plan.frames);
  feed.sample_bytes = mul_div(frames, payload, records);
  feed.read_bytes = read / records + mul_div(frames - 1, payload, records);
  // A tensor of varying length mostly holds far less than it has room for: at most what the records have.
  const uint64_t batch_payload = mul_div(feed.batch_rows, payload, records);
  feed.batch_bytes = batch_payload;
  for (const BatchTensor& tensor : plan.memory.tensors) {
    const bool dense = tensor.part == BatchTensor::Part::dense || tensor.part == BatchTensor::Part::valid;
    feed.batch_bytes += dense ? tensor.capacity : std::min(tensor.capacity, batch_payload);
  }
  return feed;
}

std::vector<std::string> advice(const FeedFigures& feed) {
  std::vector<std::string> all;
  for (const auto rule : rules)
    if (Advice advice = rule(feed)) all.push_back(std::move(*advice));
  return all;
}

}  // namespace feedline::flow
