// Makes batches of the rows of a feed, in their order: decides which rows of which chunks form the batch of which
// replica. It is a state machine without I/O or threads, and passes rows on as references.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/batch/arriving_rows.h"
#include "flowgraph/batch/step_outcome.h"
#include "flowgraph/chunk/chunk.h"
#include "flowgraph/parse/absent_features.h"
#include "flowgraph/plan/epoch_sums.h"
#include "flowgraph/plan/schedule.h"
#include "flowgraph/plan/walk.h"

namespace feedline::flow {

/// The rows of a step, which its batches share. Plain pointers to chunks are safe here: the last step that uses a chunk
/// owns it (`finished`), and the steps of a replica are delivered and then destroyed in their order. So the chunk
/// outlives every step that points to it.
struct StepRows {
  std::vector<TicketRows> rows;  // the rows of this rank, ascending by `at`
  int64_t moved = 0;             // if an error has cut the step short: the former number of the row that is row 0 now
  uint64_t first_ticket = 0;     // the ticket of chunks[0]
  std::vector<const Chunk*> chunks;  // by ticket; null: an earlier step was the last one that uses the chunk
  bool has_filler = false;           // one of the chunks has rows that are filler for bad records
  std::vector<ChunkRef> finished;    // nothing of these chunks is used after this step

  const Chunk* chunk_of(const TicketRows& run) const noexcept { return chunks[run.ticket - first_ticket]; }
};

/// Something that a replica is given: a batch, the end of an epoch, or a failure.
struct BatchRows {
  enum class Kind : uint8_t { batch, end_of_epoch, failure };
  Kind kind = Kind::batch;
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::shared_ptr<const StepRows> of_step;
  // Batch: says which rows of the step this replica gets. Those without a sample become filler: they repeat the values
  // of another record.
  Rows wanted = {};
  // Batch: how many rows its tensors have: wanted.count(), but at least one (or one window with its frames).
  int64_t rows = 0;
  // End of an epoch or failure: the chunk with which it came. The chunk's slot stays in use until the replica takes the
  // end or the failure. So the number of slots bounds how many ends of epochs are on their way to replicas.
  ChunkRef brought_by = {};
  std::shared_ptr<const Error> error = {};    // failure: what failed
  EpochEnd end = {};                          // end of an epoch: its sums
  std::shared_ptr<StepOutcome> outcome = {};  // batch: shared by the step's batches; null: its rows cannot fail
};

/// Returns the batch of one replica if an error cuts a step short before row `end`. The replicas of the rank share the
/// rows before `end` evenly. Returns nullopt if these rows hold no whole sample. `batch` is any batch of the step; the
/// chunks of its rows must still be alive.
std::optional<BatchRows> rows_before(int64_t end, const BatchRows& batch, int replica, const Schedule& schedule);

/// Makes batches of the chunks of a feed, as the top of this file says. Used by one thread at a time.
class Assembler {
 public:
  /// Begins at `start`. Keeps a reference to `schedule`, which must outlive this object. `deliver_before_error`:
  /// whether the good rows of a step before a bad record that ends the feed still become batches, which are shorter.
  Assembler(const Schedule& schedule, const Walk::Start& start, bool deliver_before_error);

  /// Takes the next chunk of the feed. Appends to out[replica], in order, the batches and ends of epochs that the chunk
  /// completes. If the chunk has a bad record that ends the feed, appends a failure, and after that nothing more.
  void add(const ChunkRef& chunk, std::vector<std::vector<BatchRows>>& out);

  bool failed() const noexcept { return failed_; }

  /// Returns the number of chunks that this object holds because the next step or a later step needs them.
  uint64_t held() const noexcept { return held_; }

  uint64_t next_epoch() const noexcept { return step_.epoch; }
  int64_t next_step() const noexcept { return step_.step; }
  /// Returns how many chunks, counted from the start of the feed, the next step needs.
  uint64_t needed() const noexcept { return step_.tickets; }

 private:
  using Out = std::vector<std::vector<BatchRows>>;
  void emit(const ChunkRef& newest, Out& out);
  void emit_unfinished(Out& out);
  template <typename SamplesOf>
  void emit_batches(const SamplesOf& samples_of, Out& out, int64_t moved = 0);
  std::shared_ptr<const StepRows> share_rows(const Rows& of_rank, int64_t moved);
  std::vector<ChunkRef> finish();
  void fail(const ChunkRef& chunk, const Error& error, Out& out);
  void end_epoch(const ChunkRef& chunk, Out& out);
  std::optional<Error> absent_feature();
  void note_lacking(const Chunk& chunk);
  void note_dropped();
  void note_bad(const Chunk& chunk, uint32_t first, uint32_t count);
  void emit_marker(BatchRows::Kind kind, const ChunkRef& chunk, std::shared_ptr<const Error> error, Out& out);
  const Steps& steps() const noexcept { return arriving_ ? arriving_->steps() : schedule_.steps; }
  const Chunk* chunk_of(const TicketRows& rows) const { return chunks_[rows.ticket - first_ticket_].chunk.get(); }

  const Schedule& schedule_;
  const bool deliver_before_error_;
  Walk walk_;
  std::optional<ArrivingRows> arriving_;  // LAZY: used instead of the walk
  Step step_;                             // the next step to be emitted
  struct Held {
    ChunkRef chunk;  // null: the chunk is no longer needed
    bool has_filler = false;
  };
  std::vector<Held> chunks_;       // by ticket, beginning with first_ticket_
  std::vector<ChunkRef> dropped_;  // chunks whose last step was given to no replica
  uint64_t first_ticket_ = 0;
  uint64_t held_ = 0;       // how many of chunks_ are still needed
  bool cut_short_ = false;  // a chunk ends with an error, so it may have fewer rows than its step wants
  bool failed_ = false;
  EpochEnd end_;  // the sums of the current epoch
  // Finds features that no record has. Set until the first epoch that was fed from its beginning has ended.
  std::optional<AbsentFeatures> absent_;
};

}  // namespace feedline::flow
