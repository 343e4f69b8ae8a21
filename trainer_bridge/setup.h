// The Setup of a feeder, made before it opens its data: the checked options, which rank reads for which, and the Route
// of the batches.
#pragma once

#include <string>
#include <vector>

#include "base/thread.h"
#include "feedline/feeder.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/distribution.h"
#include "flowgraph/table/table.h"
#include "ranks/rank_group.h"
#include "trainer_bridge/route.h"

namespace feedline {

/// The settings of a feeder, which do not change during its life.
struct Setup {
  Options options;  // `rank` and `world_size` are those of the communicator, if there is one
  flow::Distribution distribution;
  Route route;
  flow::PipelineSpec spec;
  flow::Tables tables = {};  // of `spec`; those that this rank does not open are null (trainer_bridge/open_plan.h)
  /// The monitor_places() of each rank (monitor/rank_reports.h); empty if the ranks have no exchange.
  std::vector<std::string> monitor_places;

  /// Returns the feed's pipeline if `packed` is false. Otherwise returns the pipeline whose outputs are packed rows:
  /// rows as the records store them, which the receiving rank or a GPU unpacks into the feed's outputs.
  flow::PipelineSpec carried(bool packed) const;
  /// Returns how many threads the feed has. Call it inside on_cpus().
  int threads() const;
  /// Runs `body` on the CPUs of parallelism.cpu_set, if it names any. Threads that `body` starts stay on them as well.
  template <typename Body>
  void on_cpus(Body&& body) const {
    spec.cpu_set.empty() ? body() : run_on_cpus("feedline-open", spec.cpu_set, body);
  }
};

/// Makes the setup of a rank before the ranks exchange anything. In it, only `options` and `distribution.mode` are
/// complete. If the options have a communicator, replaces their exchange by one over the communicator.
Setup begin_setup(const Pipeline& pipeline, Options options);

/// Completes the setup together with the other ranks. Call it inside RankGroup::run. `own_places` are the
/// monitor_places() of this rank; empty if it has no monitor. Throws Error bad_pipeline if the pipeline or the options
/// are wrong, or if the ranks differ in them.
void settle(Setup& setup, const Pipeline& pipeline, RankGroup& ranks, const std::string& own_places);

}  // namespace feedline
