// Steps: how the samples of an epoch fall into global batches, and a batch's rows to ranks and replicas. Arithmetic.
#pragma once

#include <cstdint>
#include <utility>

#include "flowgraph/order/lanes.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Who this process is. All ranks have as many replicas; they are numbered through the ranks.
struct Ranks {
  int rank = 0, world_size = 1;
  int replicas = 1;  // of this rank
  int all_replicas() const noexcept { return world_size * replicas; }
};

/// Rows [first, last) of a step.
struct Rows {
  int64_t first = 0, last = 0;
  int64_t count() const noexcept { return last - first; }
  bool operator==(const Rows&) const = default;
};

/// The rows of a step are numbered lane by lane. A full step has G rows, G/C of each lane. In the last one the rows of
/// a lane that ends early are missing: PAD leaves their places empty, otherwise the numbers close up.
class Steps {
 public:
  enum class Kind : uint8_t {
    full,
    last,     // PARTIAL or PAD: fewer samples than rows
    dropped,  // DROP: samples that nobody is given; each rank reads its share all the same, for the audit
  };

  /// What an epoch is: so many samples, or -1 without end; or, where `steps` is not 0, so many steps, and epochs go on
  /// from each other.
  struct Epoch {
    int64_t samples = 0;
    int64_t steps = 0;
  };
  /// picks_rows: in file order, a rank reads its rows out of a block, not the whole block.
  Steps(const Epoch& epoch, int64_t global_batch, LastBatchPolicy policy, uint32_t lanes, bool picks_rows,
        const Ranks& ranks);

  /// Full and last ones; -1 without end.
  int64_t per_epoch() const noexcept;
  /// Samples that the step behind the full ones has.
  int64_t remainder() const noexcept { return remainder_; }
  int64_t full() const noexcept { return full_; }
  /// Of step `step` of an epoch. None: the epoch is over.
  bool exists(int64_t step) const noexcept { return full_ < 0 || step < full_ || (step == full_ && remainder_ > 0); }

  /// A new epoch goes on in the pass that the last one ended in.
  bool epochs_go_on() const noexcept { return epochs_go_on_; }
  /// Passes are numbered through all epochs: the one that an epoch begins with.
  uint64_t first_pass(uint64_t epoch) const noexcept { return epochs_go_on_ ? 0 : epoch << 32; }
  /// The number of a step, counted from the beginning of first_pass() on.
  int64_t step_of_streams(uint64_t epoch, int64_t step) const noexcept {
    return epochs_go_on_ ? static_cast<int64_t>(epoch) * full_ + step : step;
  }
  /// As exists(), of a number counted in that way.
  bool reaches(int64_t step_of_streams) const noexcept { return epochs_go_on_ || exists(step_of_streams); }
  bool picks_rows() const noexcept { return picks_rows_; }
  Kind kind(int64_t step) const noexcept;

  int64_t rows(Kind kind) const noexcept { return kind == Kind::full ? global_batch_ : remainder_; }

  /// Which rows a replica is given. Places of these without a sample are filler; none may have one.
  Rows of_replica(Kind kind, int replica_of_rank) const noexcept;
  /// What the rank has to have at hand for its replicas, at least one row that is there. Of dropped ones its share.
  const Rows& of_rank(Kind kind) const noexcept { return of_rank_[static_cast<size_t>(kind)]; }

  /// The samples that a lane gives to a step, and the number of the first.
  struct LaneRows {
    int64_t first = 0, count = 0;
  };
  LaneRows of_lane(Kind kind, uint32_t lane) const noexcept;

  uint32_t lanes() const noexcept { return lanes_; }
  int64_t lane_step() const noexcept { return global_batch_ / lanes_; }

  /// LAZY: an epoch has turned out to have so many.
  void end_with(int64_t full, int64_t remainder) noexcept {
    full_ = full;
    remainder_ = remainder;
  }

 private:
  Rows hull(Kind kind) const noexcept;
  Rows with_a_sample(Kind kind, Rows rows) const noexcept;

  const int64_t global_batch_;
  const LastBatchPolicy policy_;
  const Ranks ranks_;
  const uint32_t lanes_;
  const bool epochs_go_on_;
  const bool picks_rows_;
  int64_t full_ = -1, remainder_ = 0;
  Rows of_rank_[3];
};

}  // namespace feedline::flow
