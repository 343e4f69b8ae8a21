// What a feeder settles before it opens its data: its options, checked and completed; who reads for whom; the way that
// batches take.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "feedline/feeder.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/plan/distribution.h"
#include "ranks/rank_group.h"
#include "trainer_bridge/route.h"

namespace feedline {

/// The same during the feeder's whole life.
struct Setup {
  Options options;  // `rank` and `world_size` are those of the communicator, if there is one
  flow::Distribution distribution;
  Route route;
  flow::PipelineSpec spec;

  /// Returns the feed's pipeline, or, if `packed`, the one whose outputs are packed rows, from which the feed's outputs
  /// are made later: on the rank that receives them, or on a GPU.
  flow::PipelineSpec carried(bool packed) const;
  /// Returns how many threads the feed has. Call it inside on_cpus().
  int threads() const;
  /// Runs `body` on the CPUs of parallelism.cpu_set, if it names any. Threads that `body` starts stay on them as well.
  template <typename Body>
  void on_cpus(Body&& body) const {
    spec.cpu_set.empty() ? body() : run_on_cpus("feedline-open", spec.cpu_set, body);
  }
};

/// Makes the setup of a rank before the ranks meet: only `options` and the distribution's mode are known. The exchange
/// of the options is that of the communicator, if there is one.
Setup begin_setup(const Pipeline& pipeline, Options options);

/// Completes the setup. Call it inside RankGroup::run. Throws Error bad_pipeline if the pipeline or the options are
/// wrong, or if the ranks differ in them.
void settle(Setup& setup, const Pipeline& pipeline, RankGroup& ranks);

}  // namespace feedline
