// Rows, where they lie -> the tensors of a batch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "flowgraph/assemble.h"
#include "flowgraph/batch_buffers.h"
#include "flowgraph/plan.h"
#include "gpu/unpack.h"

namespace feedline::flow {

/// Immutable; each replica's [unpack] uses the one of its plan. Keeps a reference to the plan.
class BatchWriter {
 public:
  explicit BatchWriter(const Plan& plan);

  /// Fills `buffer`: dense tensors in blocks of rows, side by side in the calling thread's arena; each row is read once
  /// and each element written once. Filler rows of variable outputs are empty, so that their bytes stay bounded.
  void write(const BatchRows& batch, BatchBuffer& buffer) const;

 private:
  static constexpr int64_t block_rows = 256;
  struct Row {
    const Chunk* chunk;
    uint32_t row;
    bool filler;
  };
  using Rows = std::span<const Row>;
  struct Tally {
    uint64_t audit = 0;
    int64_t valid = 0;
  };

  /// The rows [begin, end) of a batch into `out`, which has room.
  static Rows rows_of_batch(const BatchRows& batch, int64_t begin, int64_t end, Row* out);
  Tally write_block(Rows rows, int64_t first, const BatchBuffer& buffer) const;
  void write_dense(int output, Rows rows, std::byte* out) const;
  void write_variable(size_t tensor, const BatchRows& batch, BatchBuffer& buffer) const;
  void write_padded(size_t tensor, const BatchRows& batch, BatchBuffer& buffer) const;
  Tally tally(Rows rows) const;

  const Plan& plan_;
  int64_t rows_per_task_;
  bool any_variable_ = false;
  std::vector<std::vector<gpu::Unpacker>> unpackers_;  // by output: of a row, of a value, or of each stacked feature
};

}  // namespace feedline::flow
