// The schedule of a feed on one rank: the order of its samples, and the steps of its epochs. A schedule is a pure
// function of pipeline, data and ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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

struct Schedule {
  /// Makes the schedule of a pipeline for the data that count_data() returned. Throws Error bad_pipeline if the
  /// pipeline does not fit the data or the ranks.
  Schedule(PipelineSpec pipeline, std::shared_ptr<const DataSet> counted, const Ranks& who, int thread_count);
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  PipelineSpec spec;
  std::shared_ptr<const DataSet> shared_data;
  const DataSet& data;
  Ranks ranks;
  int64_t global_batch;
  std::vector<std::unique_ptr<const Order>> orders;  // one for each source of a mixture; otherwise one for all data
  std::optional<Mixture> mixture;
  Steps steps;  // the steps of an epoch
  std::unique_ptr<const RecordParser> parser;
  Formulas formulas;
  std::vector<uint64_t> audit_keys;  // the key of each file's audit terms (base/audit.h)
  std::vector<std::byte> zeros;      // zero bytes, to which BYTES features of bad records point (Chunk::parse())
  int replicas;                      // the number of replicas on this rank
  int threads;

  int64_t frames = 1;         // rows of a sample: the frames of a window, or 1
  int64_t replica_batch = 0;  // samples of a replica's batch
  // samples_per_epoch and steps_per_epoch are -1 if an epoch never ends, or if the data is lazy (index.mode LAZY).
  int64_t samples_per_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t dropped_per_epoch = 0;  // samples that DROP leaves out
  ExpectedAudit expected_audit;   // what an epoch's delivered, dropped and bad samples must add up to, by the indexes

  /// Returns the maximum number of chunks that are in use at once: the chunks of a step, and the chunks whose samples
  /// the shuffle mixes with the step's samples.
  uint64_t chunks_of_step() const;
  uint64_t order_bytes() const noexcept;
  bool in_file_order() const noexcept { return spec.shuffle.mode == ShuffleMode::none && !spec.interleave.on(); }

 private:
  uint64_t chunks_of_step(uint32_t source) const;
  uint64_t lanes_of_rank(const Order& order) const;
  Steps plan_orders();
  void plan_epoch();
  std::optional<uint64_t> passes_over(uint32_t source) const;
};

}  // namespace feedline::flow
