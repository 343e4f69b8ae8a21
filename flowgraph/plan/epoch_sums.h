// The sums that tell which samples an epoch delivered, and what they are held against.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "feedline/epoch_audit.h"
#include "flowgraph/order/pass_borders.h"

namespace feedline::flow {

/// Records whose checksums were damaged after the data was counted: so many are tried with the one and the other.
inline constexpr size_t doubts_tried = 10;

/// What [assemble] knows at the end of an epoch. Reading is ahead of delivery, so it travels with the end.
struct EpochEnd {
  uint64_t epoch = 0;
  int64_t first_step = 0;  // the feed began there
  uint64_t dropped = 0;    // audit of the rank's share of what DROP left out
  uint64_t bad = 0;        // of rows that became filler
  uint64_t lost = 0;       // rows that did, and whose records cannot be told
  /// A record whose payload and stored CRC do not fit is in `bad` by its stored CRC. Should that be what was damaged,
  /// this is to be added. At most doubts_tried + 1 are kept.
  std::vector<uint64_t> doubts = {};
  std::optional<uint64_t> counted = {};  // LAZY: what the epoch held
};

/// The sums of an epoch, of a rank or of all ranks.
struct EpochSums {
  EpochEnd end;
  uint64_t delivered = 0;
};

/// What the sums of an epoch are held against.
struct ExpectedAudit {
  std::optional<uint64_t> sum;
  std::string why_none = "the indexes do not say what an epoch holds";
  /// `epoch.steps`: epochs end within passes, so whole passes are compared, at the end of the epoch that they end in.
  struct Passes {
    PassBorders borders;
    uint64_t sum = 0;  // of each
    uint64_t steps_per_epoch = 0;
  };
  std::optional<Passes> passes = {};
};

/// An epoch, or the passes that ended in it.
struct FinishedEpoch {
  EpochSums sums;
  ExpectedAudit expected;
};

/// Holds the sums of all ranks against what is expected.
EpochAudit judge(const EpochSums& sums, const ExpectedAudit& expected);

}  // namespace feedline::flow
