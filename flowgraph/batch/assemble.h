// Rows in order -> batches: which rows of which chunks are the batch of which replica. A state machine without I/O or
// threads; rows travel as references.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/batch/arriving_rows.h"
#include "flowgraph/chunk/chunk.h"
#include "flowgraph/parse/absent_features.h"
#include "flowgraph/plan/epoch_sums.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/walk.h"

namespace feedline::flow {

/// The rows of a step, which its batches share. Batches of a replica are used up in their order, and a chunk lives
/// until nobody has the step that finished it: so one that a step names outlives it.
struct StepRows {
  std::vector<TicketRows> rows;      // of this rank, ascending by `at`
  uint64_t first_ticket = 0;         // of `chunks`
  std::vector<const Chunk*> chunks;  // by ticket; null: an earlier step finished it
  bool has_filler = false;           // one of the chunks: a row may stand in for a bad record
  std::vector<ChunkRef> finished;    // nothing is used of these behind this step

  const Chunk* chunk_of(const TicketRows& run) const noexcept { return chunks[run.ticket - first_ticket]; }
};

/// What a replica is to be given next.
struct BatchRows {
  enum class Kind : uint8_t { batch, end_of_epoch, failure };
  Kind kind = Kind::batch;
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::shared_ptr<const StepRows> of_step;
  Rows wanted;                         // of a batch: rows of the step; places among them that have none are padding
  int64_t rows = 0;                    // of a batch: as many as are wanted, and at least one (of a window: its frames)
  ChunkRef brought_by;                 // of an end or failure: its slot bounds how many there are
  std::shared_ptr<const Error> error;  // of a failure
  EpochEnd end;                        // of an end of epoch
};

class Assembler {
 public:
  /// Keeps a reference to `plan`. deliver_before_error: see Options.
  Assembler(const Plan& plan, const Walk::Start& start, bool deliver_before_error);

  /// Takes the next chunk of the feed; appends to out[replica] what it completes, in order. After a failure nothing
  /// more comes.
  void add(const ChunkRef& chunk, std::vector<std::vector<BatchRows>>& out);

  bool failed() const noexcept { return failed_; }

  /// Chunks that it keeps for the next step or later ones.
  uint64_t held() const noexcept { return held_; }

  uint64_t next_epoch() const noexcept { return step_.epoch; }
  int64_t next_step() const noexcept { return step_.step; }
  /// Chunks, from the start of the feed, that the next step needs.
  uint64_t needed() const noexcept { return step_.tickets; }

 private:
  using Out = std::vector<std::vector<BatchRows>>;
  void emit(const ChunkRef& newest, Out& out);
  void emit_unfinished(Out& out);
  void emit_batch(int replica, const std::shared_ptr<const StepRows>& step, const Rows& samples, Out& out);
  std::shared_ptr<const StepRows> share_rows();
  std::vector<ChunkRef> finish();
  void fail(const ChunkRef& chunk, const Error& error, Out& out);
  void end_epoch(const ChunkRef& chunk, Out& out);
  std::optional<Error> absent_feature();
  void note_dropped();
  void note_bad(const Chunk& chunk, uint32_t first, uint32_t count);
  void emit_marker(BatchRows::Kind kind, const ChunkRef& chunk, std::shared_ptr<const Error> error, Out& out);
  const Steps& steps() const noexcept { return arriving_ ? arriving_->steps() : plan_.steps; }
  const Chunk* chunk_of(const TicketRows& rows) const { return chunks_[rows.ticket - first_ticket_].chunk.get(); }

  const Plan& plan_;
  const bool deliver_before_error_;
  Walk walk_;
  std::optional<ArrivingRows> arriving_;  // LAZY: instead of the walk
  Step step_;                             // the next one to be emitted
  struct Held {
    ChunkRef chunk;  // null: no longer needed
    bool has_filler = false;
  };
  std::vector<Held> chunks_;       // by ticket, from first_ticket_ on
  std::vector<ChunkRef> dropped_;  // finished by a step that was not given to anybody
  uint64_t first_ticket_ = 0;
  uint64_t held_ = 0;       // of chunks_: those that are still needed
  bool cut_short_ = false;  // a chunk ends with an error: it may have fewer rows than are wanted of it
  bool failed_ = false;
  EpochEnd end_;                          // of the epoch that is going on
  std::optional<AbsentFeatures> absent_;  // until the first epoch that was fed from its beginning has ended
};

}  // namespace feedline::flow
