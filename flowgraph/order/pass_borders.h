// Finds where passes over the data end within steps. This matters for epochs of a fixed number of steps
// (`epoch.steps`): each epoch continues where the last one ended, so a pass may end in the middle of an epoch. Pure
// arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "flowgraph/order/order.h"

namespace feedline::flow {

/// Says how the audit of a batch (the sum of hashes of its records, base/audit.h) is divided between the two passes
/// that its step may belong to.
struct PassAudit {
  uint64_t pass = 0;   // the older of the two passes, counted from the beginning of the feed
  uint64_t later = 0;  // the part of the batch's audit that belongs to the next pass
};

/// The borders between passes within the steps of a feed. Steps are numbered by Steps::step_of_streams(). In one step
/// each lane gives rows of at most two passes, and these are the same two passes for all lanes, because a pass has at
/// least twice as many samples as a step (apply_to()). Keeps a pointer to the order.
class PassBorders {
 public:
  PassBorders(const Order& order, int64_t global_batch) : order_(&order), global_batch_(global_batch) {}
  /// Returns whether passes are long enough for this class: at least two steps.
  static bool apply_to(const Order& order, int64_t global_batch) noexcept {
    return order.samples() >= 2 * static_cast<uint64_t>(global_batch);
  }

  /// Returns the number of passes that all lanes have finished before a step begins.
  uint64_t ended_before(uint64_t step) const noexcept {
    uint64_t ended = UINT64_MAX;
    for (uint32_t lane = 0; lane < lanes(); lane++)
      ended = std::min(ended, order_->epoch_pass_at(lane, step * lane_step()));
    return ended;
  }
  /// Calls part(begin, end) for each run of samples [begin, end) of a step that belongs to the later of its two passes:
  /// to pass ended_before(step) + 1, counted from 0.
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
