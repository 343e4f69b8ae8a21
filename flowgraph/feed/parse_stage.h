// The stage [parse]: verifies and parses chunks. If a chunk was not read yet, first looks for its bytes in the caches.
#pragma once

#include <atomic>
#include <cstdint>

#include "flowgraph/batch/batch_writer.h"
#include "flowgraph/feed/read_stage.h"
#include "flowgraph/feed/stage_counters.h"
#include "flowgraph/plan/plan.h"

namespace feedline::flow {

/// All members may be called on any thread, for several chunks at a time.
class ParseStage {
 public:
  /// Keeps references to all arguments.
  ParseStage(const Plan& plan, const BatchWriter& writer, ReadStage& read)
      : plan_(plan), writer_(writer), read_(read) {}

  /// Returns the chunk of a message. For Untried, takes the oldest chunk for which no thread has looked in the caches
  /// yet.
  ChunkRef take(const ToParse& message) const;
  /// Returns whether the chunk must be looked for in the caches (ReadStage::read_cached()) before it is parsed.
  bool is_untried(const Chunk& chunk) const noexcept { return read_.is_untried(chunk); }
  /// Parses a chunk, all bytes of which have been read. Before that, puts its records into the cache of records, if
  /// there is one. After that, tells row writers which rows will be made of the chunk.
  void parse(Chunk& chunk);

  StageCounters& counters() noexcept { return counters_; }
  const StageCounters& counters() const noexcept { return counters_; }
  /// Return how many records were parsed, and how many of them had the byte layout of earlier records.
  uint64_t parsed() const noexcept { return parsed_; }
  uint64_t layout_hits() const noexcept { return layout_hits_; }

 private:
  const Plan& plan_;
  const BatchWriter& writer_;
  ReadStage& read_;
  StageCounters counters_{"feedline parse"};
  std::atomic<uint64_t> layout_hits_{0}, parsed_{0};
};

}  // namespace feedline::flow
