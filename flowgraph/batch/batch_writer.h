// Writes rows of chunks into the tensors of a batch.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "flowgraph/batch/batch_buffers.h"
#include "flowgraph/batch/batch_rows.h"
#include "flowgraph/batch/step_outcome.h"
#include "flowgraph/chunk/cache_store.h"
#include "flowgraph/plan/plan.h"
#include "gpu/device/memory.h"
#include "unpack/unpack.h"

namespace feedline::flow {

struct RowBlock;

/// Writes the batches of a plan. The graph's nodes [unpack] of all replicas share one writer. Immutable. Keeps a
/// reference to the plan, and to the cache of pictures, if there is one.
class BatchWriter {
 public:
  /// `for_gpus`: the batches are copied to GPUs, and nothing else reads them.
  explicit BatchWriter(const Plan& plan, CacheStore* rows = nullptr, bool for_gpus = false);

  /// Fills `buffer`, or points its tensors into the slot if the plan lends rows (MemoryPlan::lends). Writes dense
  /// tensors, and the steps of sequences if a RowWriter makes them, in blocks of rows, in parallel in the calling
  /// thread's arena. Reads each row once and writes each element once.
  ///
  /// Returns the rows that could not be written. Each of them is filler now. Its dense tensors are those of the nearest
  /// good row of the batch, or made of zeros if there is no good row. In all other tensors it has no values.
  /// Precondition: the calling thread is in an arena of at most Schedule::threads threads.
  std::vector<BadRecord> write(const BatchRows& batch, BatchBuffer& buffer) const;

  /// Tells row writers which rows will be made of a chunk, so that they can begin to read what they need.
  void read_ahead(const Chunk& chunk) const noexcept;

  /// Returns how many warnings row writers gave (RowOutcome::warnings).
  uint64_t warnings() const noexcept { return warnings_; }
  /// Return, for the outputs whose rows are cached, how many rows were found in the cache, and how many were not.
  uint64_t found() const noexcept { return found_; }
  uint64_t not_found() const noexcept { return not_found_; }

 private:
  struct Tally {
    uint64_t audit = 0;
    int64_t valid = 0;
  };
  struct Failures;
  /// For each output, one Unpacker for each of its jobs or, if the output is not dense, one that casts a single number.
  using Unpackers = std::vector<std::vector<unpack::Unpacker>>;

  static Unpackers make_unpackers(const Plan& plan, unpack::Stores stores);
  void write_block(RowBlock& block, const Unpackers& unpackers, BatchBuffer& buffer, Failures& failures) const;
  bool lend_dense(size_t tensor, const BatchRow& row, BatchBuffer& buffer) const;
  void write_rows(int output, RowBlock& block, const Unpackers& unpackers, std::byte* out, size_t row_bytes,
                  Failures& failures) const;
  std::span<const uint64_t> entries_of(const RowBlock& block, uint64_t part,
                                       std::array<uint64_t, block_rows>& entries) const;
  void run_writer(int output, RowBlock& block, std::byte* out, Failures& failures) const;
  void write_values(int output, RowBlock& block, std::byte* out, Failures& failures) const;
  void write_steps(int output, RowBlock& block, std::byte* out, size_t row_bytes, Failures& failures) const;
  RowOutcome call(const RowWriter& writer, std::span<const std::span<const std::byte>> values, const RowNumbers& rows,
                  std::byte* out, size_t stride) const;
  std::span<std::byte> of_thread(const gpu::Memory& memory, uint64_t each) const;
  RowNumbers numbers_of(const RowBlock& block, const BatchRows& batch) const noexcept;
  bool has_made_steps(const BatchTensor& tensor) const noexcept;
  int64_t longest_row(const BatchTensor& tensor, const BatchRows& batch) const;
  static void add_padding_of(const BatchRows& batch, std::vector<int64_t>& failed);
  void fill_failed(std::span<const int64_t> failed, int64_t rows, BatchBuffer& buffer) const;
  void write_job(const DenseJob& job, const RowBlock& block, const unpack::Unpacker& unpack, std::byte* out,
                 size_t row_bytes) const;
  std::vector<Rows> rows_of_later_pass(const BatchRows& batch, PassAudit& passes) const;
  int64_t valid_windows(const BatchBuffer& buffer) const;
  static Tally tally(const RowBlock& block) noexcept;

  const Plan& plan_;
  gpu::Memory scratch_;        // MemoryPlan::scratch_bytes for each thread
  gpu::Memory cache_scratch_;  // CachePlan::scratch_bytes() for each thread
  int64_t rows_per_task_;
  Unpackers unpackers_;          // for a buffer that was written a moment ago
  Unpackers cold_unpackers_;     // for a buffer that has left the caches since it was written
  io::EntryStore* const store_;  // the cache of made rows; null: no rows are cached
  mutable std::atomic<uint64_t> warnings_{0}, found_{0}, not_found_{0};
};

}  // namespace feedline::flow
