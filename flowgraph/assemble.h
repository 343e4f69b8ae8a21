// Rows in order -> batches: which rows of which chunks are the batch of which replica. A state machine without I/O or
// threads; rows travel as references.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "feedline/error.h"
#include "flowgraph/chunk.h"
#include "flowgraph/plan.h"

namespace feedline::flow {

struct RowRun {
  ChunkRef chunk;
  uint32_t first = 0;
  uint32_t count = 0;
  bool padding = false;  // the row `first`, `count` times, as filler
};

/// What a replica is to be given next.
struct BatchRows {
  enum class Kind : uint8_t { batch, end_of_epoch, failure };
  Kind kind = Kind::batch;
  uint64_t epoch = 0;
  uint64_t step = 0;
  int64_t rows = 0;
  std::vector<RowRun> runs;  // of a batch: `rows` rows; else the chunk that brought it, so that markers are bounded too
  std::shared_ptr<const Error> error;  // of a failure
};

class Assembler {
 public:
  /// Keeps a reference to `plan`. deliver_before_error: see Options.
  Assembler(const Plan& plan, uint64_t first_epoch, bool deliver_before_error);

  /// Takes the next chunk of the feed; appends to out[replica] what it completes, in order. After a failure nothing
  /// more comes.
  void add(const ChunkRef& chunk, std::vector<std::vector<BatchRows>>& out);

  bool failed() const noexcept { return failed_; }

 private:
  void emit(int64_t samples, std::vector<std::vector<BatchRows>>& out);
  void emit_marker(BatchRows::Kind kind, const ChunkRef& chunk, std::shared_ptr<const Error> error,
                   std::vector<std::vector<BatchRows>>& out);

  const Plan& plan_;
  const bool deliver_before_error_;
  std::vector<RowRun> pending_;  // rows that wait for their step to fill up
  int64_t pending_rows_ = 0;
  uint64_t epoch_;
  uint64_t step_ = 0;
  bool failed_ = false;
};

}  // namespace feedline::flow
