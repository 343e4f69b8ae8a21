// The plan of a feed: what is fed when, and every byte of memory, computed before anything starts.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "flowgraph/plan/cache_plan.h"
#include "flowgraph/plan/memory_plan.h"
#include "flowgraph/plan/row_writers.h"
#include "flowgraph/plan/schedule.h"
#include "flowgraph/table/table.h"

namespace feedline::flow {

/// The schedule and the memory of a feed on one rank.
struct Plan : Schedule {
  /// Computes the memory that the feed takes beside the graph. It is called when the batches have been planned.
  using MoreMemory = std::function<MemoryLine(const Plan&)>;

  /// Makes the plan of a pipeline for the data that count_data() returned, and for the cache that is planned for it.
  /// `open_tables` are the pipeline's tables, open. Throws Error bad_pipeline if the pipeline does not fit the data or
  /// the ranks, or if the plan exceeds memory.limit.
  Plan(PipelineSpec pipeline, std::shared_ptr<const DataSet> counted, const Ranks& who, int thread_count,
       const MoreMemory& more = {}, std::shared_ptr<const CachePlan> planned_cache = nullptr, Tables open_tables = {})
      : Schedule(std::move(pipeline), std::move(counted), who, thread_count),
        tables(std::move(open_tables)),
        writers(spec, tables),
        memory(*this),
        cache(std::move(planned_cache)) {
    memory.fit(*this, writers, tables,
               {more ? more(*this) : MemoryLine{},
                {"cache", 1, cache ? cache->memory_bytes() : 0},
                {"cache: an entry", static_cast<uint64_t>(threads), cache ? cache->scratch_bytes() : 0}});
  }
  Plan(PipelineSpec pipeline, DataSet counted, const Ranks& who, int thread_count)
      : Plan(std::move(pipeline), std::make_shared<const DataSet>(std::move(counted)), who, thread_count) {}

  Tables tables;  // of the pipeline, open
  RowWriters writers;
  MemoryPlan memory;
  std::shared_ptr<const CachePlan> cache;  // null: the pipeline has no cache

  /// Returns the plan as text for the user: the stages in their order with counts, the outputs with their shapes, and
  /// the memory plan.
  std::string text() const;

 private:
  void sources_text(std::string& text, size_t number) const;
  void order_text(std::string& text) const;
};

}  // namespace feedline::flow
