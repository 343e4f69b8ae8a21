// Writes rows, wherever they lie, into the tensors of a batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/batch/batch_rows.h"
#include "flowgraph/plan/plan.h"
#include "gpu/unpack/unpack.h"

namespace feedline::flow {

struct RowBlock;

/// Writes the batches of a plan; [unpack] of every replica uses the same writer. Immutable. Keeps a reference to the
/// plan.
class BatchWriter {
 public:
  explicit BatchWriter(const Plan& plan);

  /// Fills `buffer`, or points its tensors at the rows if the plan lends rows. Writes dense tensors in blocks of rows,
  /// in parallel in the calling thread's arena. Reads each row once and writes each element once.
  void write(const BatchRows& batch, BatchBuffer& buffer) const;

 private:
  struct Tally {
    uint64_t audit = 0;
    int64_t valid = 0;
  };
  using Unpackers =
      std::vector<std::vector<gpu::Unpacker>>;  // by output: one for each of its jobs, or one for a single number

  static Unpackers make_unpackers(const Plan& plan, gpu::Stores stores);
  /// Writes one block of rows. `first` is the number of the block's first row in the batch.
  Tally write_block(const RowBlock& block, int64_t first, const Unpackers& unpackers, BatchBuffer& buffer) const;
  bool lend_dense(size_t tensor, const BatchRow& row, BatchBuffer& buffer) const;
  void write_dense(int output, const RowBlock& block, const Unpackers& unpackers, std::byte* out) const;
  void write_job(const DenseJob& job, const RowBlock& block, const gpu::Unpacker& unpack, std::byte* out,
                 size_t row_bytes) const;
  std::vector<Rows> rows_of_later_pass(const BatchRows& batch, PassAudit& passes) const;
  int64_t valid_windows(const BatchBuffer& buffer) const;
  static Tally tally(const RowBlock& block) noexcept;

  const Plan& plan_;
  int64_t rows_per_task_;
  Unpackers unpackers_;       // for a buffer that was written a moment ago
  Unpackers cold_unpackers_;  // for a buffer that has left the caches since
};

}  // namespace feedline::flow
