// Divides the samples of an epoch into steps (global batches), and the rows of a step among ranks and replicas. Pure
// arithmetic.
#pragma once

#include <cstdint>

#include "base/mul_div.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Says which rank this process is. Every rank has the same number of replicas; replicas are numbered through all
/// ranks.
struct Ranks {
  int rank = 0, world_size = 1;
  int replicas = 1;  // the number of replicas on each rank
  int all_replicas() const noexcept { return world_size * replicas; }
};

/// Rows [first, last) of a step.
struct Rows {
  int64_t first = 0, last = 0;
  int64_t count() const noexcept { return last - first; }
  bool operator==(const Rows&) const = default;
};

/// The steps of an epoch, and the rows of a step. In this class a row is the place of one sample in a step, whether or
/// not the sample has several frames.
///
/// The rows of a step are numbered lane by lane. A step is full if it has G samples (the global batch), one for each of
/// its G rows: G/C of each of the C lanes. In the last step some lanes have fewer samples. With last_batch_policy PAD,
/// the rows that lack a sample keep their numbers and are empty. With PARTIAL the rows after them move up, so that the
/// numbers have no gaps.
class Steps {
 public:
  enum class Kind : uint8_t {
    full,     // it has G samples
    last,     // PARTIAL or PAD: the last step, which has fewer samples than G
    dropped,  // DROP: no replica is given its samples, but each rank reads its share of them for the audit
  };

  /// The length of an epoch. If `steps` is 0, an epoch has `samples` samples; if `samples` is -1, it never ends. If
  /// `steps` is not 0, an epoch has that many steps, all of them full, and each epoch continues where the last one
  /// ended.
  struct Epoch {
    int64_t samples = 0;
    int64_t steps = 0;
  };
  /// `picks_rows` says whether, in shuffle mode NONE, each rank reads only its own rows of a block, and not the whole
  /// block (Order::picks_rows()).
  Steps(const Epoch& epoch, int64_t global_batch, LastBatchPolicy policy, uint32_t lanes, bool picks_rows,
        const Ranks& ranks);

  /// Returns the number of steps of an epoch that are given to replicas, of the kinds full and last; -1 if an epoch
  /// never ends.
  int64_t per_epoch() const noexcept;
  /// The number of samples in the step after the full ones; 0 if there is no such step.
  int64_t remainder() const noexcept { return remainder_; }
  /// The number of full steps in an epoch; -1 if an epoch never ends.
  int64_t full() const noexcept { return full_; }
  /// Returns whether an epoch has a step `step`, even if it is a dropped one.
  bool exists(int64_t step) const noexcept { return full_ < 0 || step < full_ || (step == full_ && remainder_ > 0); }

  /// Returns whether each epoch continues where the last one ended, maybe in the middle of a pass.
  bool epochs_go_on() const noexcept { return epochs_go_on_; }
  /// Returns the number of the pass (over all samples) from which an epoch's samples and steps are counted. If each
  /// epoch continues where the last one ended, this is pass 0. Otherwise each epoch has 2^32 pass numbers of its own,
  /// beginning at epoch * 2^32; these exceed 64 bits, hence Wide.
  Wide first_pass(uint64_t epoch) const noexcept { return epochs_go_on_ ? 0 : Wide{epoch} << 32; }
  /// Returns the number of a step, counted from the beginning of first_pass(epoch).
  int64_t step_of_streams(uint64_t epoch, int64_t step) const noexcept {
    return epochs_go_on_ ? static_cast<int64_t>(epoch) * full_ + step : step;
  }
  /// Returns whether there is a step for which step_of_streams() gives this number.
  bool reaches(int64_t step_of_streams) const noexcept { return epochs_go_on_ || exists(step_of_streams); }
  bool picks_rows() const noexcept { return picks_rows_; }
  Kind kind(int64_t step) const noexcept;

  /// Returns the number of samples in a step.
  int64_t rows(Kind kind) const noexcept { return kind == Kind::full ? global_batch_ : remainder_; }

  /// Returns the rows that a replica of this rank is given. Rows without a sample become filler (a copy of another
  /// sample, 0 in the mask). It may be that none of the rows has a sample.
  Rows of_replica(Kind kind, int replica_of_rank) const noexcept;
  /// The rows that this rank must read for its replicas. At least one of the rows has a sample, because filler is a
  /// copy of a sample. For a dropped step: the rank's share of the rows.
  const Rows& of_rank(Kind kind) const noexcept { return of_rank_[static_cast<size_t>(kind)]; }

  /// The rows [first, first + count) of a step whose samples come from one lane.
  struct LaneRows {
    int64_t first = 0, count = 0;
  };
  LaneRows of_lane(Kind kind, uint32_t lane) const noexcept;

  uint32_t lanes() const noexcept { return lanes_; }
  /// The number of samples that a full step takes from each lane.
  int64_t lane_step() const noexcept { return global_batch_ / lanes_; }

  /// LAZY: sets the length of an epoch, which is known only once a pass has been read: `full` full steps, and
  /// `remainder` samples after them.
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
