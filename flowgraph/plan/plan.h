// Every count and every byte, before anything starts: a pure function of pipeline, data and ranks.
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
#include "flowgraph/parse/example_parser.h"
#include "flowgraph/parse/formula_columns.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/epoch_sums.h"

namespace feedline::flow {

/// Bytes: of the tensors in a batch buffer.
inline constexpr uint64_t tensor_alignment = 64;
constexpr uint64_t round_up(uint64_t value, uint64_t to) noexcept { return (value + to - 1) / to * to; }

/// One tensor of a batch buffer.
struct BatchTensor {
  /// What it holds of its output. A dense output is `dense`; a variable one is several tensors.
  enum class Part : uint8_t { dense, padded, values, bytes, offsets, row_splits, valid };
  std::string name;  // "board"; "tags.values"; "@valid"
  Part part = Part::dense;
  int output = -1;  // of PipelineSpec::outputs; -1: the valid mask
  DType dtype = DType::unset;
  Shape shape;            // of a row, or of a value; padded: of a step
  uint64_t offset = 0;    // in the buffer, a multiple of tensor_alignment
  uint64_t capacity = 0;  // bytes
};

struct MemoryLine {
  std::string what;
  uint64_t count = 1;
  uint64_t bytes = 0;  // of one
};

struct Plan {
  /// What else the feed takes beside the graph, once the batches are known.
  using MoreMemory = std::function<MemoryLine(const Plan&)>;

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
  std::vector<std::unique_ptr<const Order>> orders;  // of `data`; of a mixture one for each source
  std::optional<Mixture> mixture;
  Steps steps;  // of an epoch
  ExampleParser parser;
  Formulas formulas;
  std::vector<uint64_t> audit_keys;  // of each file: base/audit.h
  std::vector<std::byte> zeros;      // the bytes of a row that has none: filler in a chunk without a good row
  int replicas;                      // of this rank
  int threads;

  int64_t frames = 1;  // rows of a sample: frames of a window
  int64_t replica_batch = 0;
  int64_t samples_per_epoch = 0;  // -1 where the epoch never ends or the data is lazy, as
  int64_t steps_per_epoch = 0;
  int64_t dropped_per_epoch = 0;
  ExpectedAudit expected_audit;  // of an epoch: what is delivered, dropped and bad, by the indexes

  // Memory.
  uint64_t step_chunks = 0;  // that a step and what it mixes with hold at once, at most
  uint32_t slots = 0;
  uint32_t slots_of_page_cache = 0;  // in use while all comes from there, few, so that their memory stays in the caches
  // Chunks beyond those that the next step needs, at most: out of the page cache, and from a disk.
  uint64_t read_ahead = 0, read_ahead_of_disk = 0;
  uint64_t slot_data_bytes = 0;
  uint64_t slot_arena_bytes = 0;
  uint32_t buffers_per_replica = 0;
  std::vector<BatchTensor> tensors;
  uint64_t buffer_bytes = 0;
  bool lends = false;      // a batch of one row holds its chunk: bytes may be delivered where they were read
  uint32_t inflaters = 0;  // 0: no compressed file
  std::vector<MemoryLine> memory;

  /// Batches that may hold a chunk each, at most: as many as there are buffers where the plan lends rows.
  uint64_t lent_chunks() const noexcept { return lends ? static_cast<uint64_t>(replicas) * buffers_per_replica : 0; }
  /// What the columns of `rows` rows with so many bytes of payload take of a slot, at most.
  uint64_t arena_bytes(uint32_t rows, uint64_t payload) const;
  uint64_t memory_bytes() const noexcept;
  /// For people: stages in their order with counts, outputs with shapes, and the memory plan.
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
