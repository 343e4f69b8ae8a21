// Where passes over the data end inside the steps of epochs that go on from each other (`epoch.steps`). Arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowgraph/order/order.h"

namespace feedline::flow {

/// What a batch adds to the audit of the pass that is the oldest in its step, and to the next one's.
struct PassAudit {
  uint64_t pass = 0;   // the oldest, counted from the beginning of the feed
  uint64_t later = 0;  // of the batch's audit, what belongs to the next pass
};

/// Steps are counted as by Steps::step_of_streams(). In one step each lane gives rows of at most two passes, and all
/// lanes the same two: a pass has at least twice as many samples as a step. Keeps a pointer to the order.
class PassBorders {
 public:
  PassBorders(const Order& order, int64_t global_batch) : order_(&order), global_batch_(global_batch) {}
  static bool apply_to(const Order& order, int64_t global_batch) noexcept {
    return order.samples() >= 2 * static_cast<uint64_t>(global_batch);
  }

  /// Passes that every lane has ended before a step.
  uint64_t ended_before(uint64_t step) const noexcept {
    uint64_t ended = UINT64_MAX;
    for (uint32_t lane = 0; lane < lanes(); lane++) ended = std::min(ended, order_->phase_at(lane, step * lane_step()));
    return ended;
  }
  /// Calls part(begin, end) for the samples [begin, end) of a step that belong to the pass after ended_before(step).
  template <typename Part>
  void for_each_later(uint64_t step, const Part& part) const {
    const uint64_t oldest = ended_before(step);
    for (uint32_t lane = 0; lane < lanes(); lane++) {
      const uint64_t first = step * lane_step(), border = order_->lane_samples(lane, oldest + 1);
      if (border < first + lane_step())
        part(static_cast<int64_t>(lane * lane_step() + std::max(border, first) - first),
             static_cast<int64_t>((lane + 1) * lane_step()));
    }
  }

 private:
  uint32_t lanes() const noexcept { return order_->lanes().count; }
  uint64_t lane_step() const noexcept { return static_cast<uint64_t>(global_batch_) / lanes(); }

  const Order* order_;
  int64_t global_batch_;
};

}  // namespace feedline::flow
