// The plan of a feed: every count and every byte of memory, computed before anything starts. It is a pure function of
// pipeline, data and ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flowgraph/data/data_set.h"
#include "flowgraph/order/mixture.h"
#include "flowgraph/order/order.h"
#include "flowgraph/order/steps.h"
#include "flowgraph/parse/formula_columns.h"
#include "flowgraph/parse/record_parser.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/epoch_sums.h"

namespace feedline::flow {

/// The alignment, in bytes, of the tensors in a batch buffer.
inline constexpr uint64_t tensor_alignment = 64;
/// Returns the smallest multiple of `to` that is at least `value`.
constexpr uint64_t round_up(uint64_t value, uint64_t to) noexcept { return (value + to - 1) / to * to; }

/// One tensor of a batch buffer.
struct BatchTensor {
  /// Which part of its output the tensor holds. A dense output is one tensor, `dense`; a variable output is several.
  enum class Part : uint8_t { dense, padded, values, bytes, offsets, row_splits, valid };
  std::string name;  // "board"; "tags.values"; "@valid"
  Part part = Part::dense;
  int output = -1;  // index in PipelineSpec::outputs; -1: the valid mask
  DType dtype = DType::unset;
  Shape shape;            // dense: the shape of a row; padded: of one step of the row's sequence; else: of a value
  uint64_t offset = 0;    // bytes from the beginning of the buffer, a multiple of tensor_alignment
  uint64_t capacity = 0;  // bytes
};

/// A line of the memory plan.
struct MemoryLine {
  std::string what;
  uint64_t count = 1;
  uint64_t bytes = 0;  // bytes of one of the `count` things
};

/// The schedule and the memory of a feed on one rank.
struct Plan {
  /// Computes the memory that the feed takes beside the graph. It is called once the batches are planned.
  using MoreMemory = std::function<MemoryLine(const Plan&)>;

  /// Makes the plan of a pipeline over counted data. Throws Error bad_pipeline if the pipeline does not fit the data or
  /// the ranks, or if the plan exceeds memory.limit.
  Plan(PipelineSpec pipeline, DataSet counted, const Ranks& who, int thread_count);
  Plan(PipelineSpec pipeline, std::shared_ptr<const DataSet> counted, const Ranks& who, int thread_count,
       const MoreMemory& more = {});
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  PipelineSpec spec;
  std::shared_ptr<const DataSet> shared_data;
  const DataSet& data;
  Ranks ranks;
  int64_t global_batch;
  std::vector<std::unique_ptr<const Order>> orders;  // one for each source of a mixture; else one for all data
  std::optional<Mixture> mixture;
  Steps steps;  // the steps of an epoch
  RecordParser parser;
  Formulas formulas;
  std::vector<uint64_t> audit_keys;  // the key of each file's audit terms (base/audit.h)
  std::vector<std::byte> zeros;      // what the bytes of a bad row point to if its chunk has no good row to copy
  int replicas;                      // the number of replicas on this rank
  int threads;

  int64_t frames = 1;         // rows of a sample: the frames of a window, or 1
  int64_t replica_batch = 0;  // samples of a replica's batch
  // Both are -1 if an epoch never ends or the data is lazy.
  int64_t samples_per_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t dropped_per_epoch = 0;  // samples that DROP leaves out
  ExpectedAudit expected_audit;   // what an epoch's delivered, dropped and bad samples must add up to, by the indexes

  // Memory.
  uint64_t step_chunks = 0;  // the most chunks that a step, and the samples that are mixed with it, hold at once
  uint32_t slots = 0;
  // The slots in use while all reads come from the page cache: few, so that their memory stays in the CPU's caches.
  uint32_t slots_of_page_cache = 0;
  // The most chunks that are read in addition to those that the next step needs: from the page cache, and from a disk.
  uint64_t read_ahead = 0, read_ahead_of_disk = 0;
  uint64_t slot_data_bytes = 0;   // of each slot: for the bytes as they are read
  uint64_t slot_arena_bytes = 0;  // of each slot: for the columns
  uint32_t buffers_per_replica = 0;
  std::vector<BatchTensor> tensors;
  uint64_t buffer_bytes = 0;  // of each batch buffer
  bool lends = false;         // batches of one row deliver bytes where they were read, and so hold the row's chunk
  uint32_t inflaters = 0;     // 0: there is no compressed file
  std::vector<MemoryLine> memory;

  /// Returns the most chunks that batches hold: one for each batch buffer if the plan lends rows, else 0.
  uint64_t lent_chunks() const noexcept { return lends ? static_cast<uint64_t>(replicas) * buffers_per_replica : 0; }
  /// Returns the most bytes of a slot that the columns of `rows` rows take, if their payloads have `payload` bytes.
  uint64_t arena_bytes(uint32_t rows, uint64_t payload) const;
  uint64_t memory_bytes() const noexcept;
  /// Returns the plan as text for the user: the stages in their order with counts, the outputs with their shapes, and
  /// the memory plan.
  std::string text() const;

 private:
  Steps plan_orders();
  void plan_epoch();
  std::optional<uint64_t> passes_over(uint32_t source) const;
  void plan_slots();
  bool in_file_order() const noexcept { return spec.shuffle.mode == ShuffleMode::none && !spec.interleave.on(); }
  void sources_text(std::string& text, size_t number) const;
  void order_text(std::string& text) const;
  uint64_t chunks_of_step() const;
  uint64_t chunks_of_step(uint32_t source) const;
  uint64_t order_bytes() const noexcept;
  void plan_outputs();
  void fit_memory(const MemoryLine& more);
};

}  // namespace feedline::flow
