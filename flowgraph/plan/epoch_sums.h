// Audit sums (sums of hashes of records, base/audit.h) of the samples that an epoch delivered, and the sums that are
// expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "feedline/epoch_audit.h"
#include "flowgraph/order/pass_borders.h"

namespace feedline::flow {

/// The maximum number of records, damaged after the data was counted, for which judge() tries both possibilities: that
/// the payload was damaged, and that the stored CRC was. See EpochEnd::doubts.
inline constexpr size_t doubts_tried = 10;

/// The sums that the graph's node [assemble] has at the end of an epoch. Reading may be epochs ahead of delivery. So
/// these sums are sent with the message that ends the epoch to the EpochLedger, which adds up the delivered rows.
struct EpochEnd {
  uint64_t epoch = 0;
  int64_t first_step = 0;  // the step of the epoch at which the feed began; 0 if it fed the epoch from its beginning
  uint64_t dropped = 0;    // the audit of the rank's share of the samples that DROP left out
  uint64_t bad = 0;        // the audit of the bad records, whose rows became filler
  uint64_t lost = 0;       // the number of rows that became filler and whose records cannot be identified
  /// For each record whose payload and stored CRC do not match: the value to add to `bad` if the stored CRC was damaged
  /// and not the payload. `bad` itself has the term with the stored CRC. At most doubts_tried + 1 values are kept.
  std::vector<uint64_t> doubts = {};
  std::optional<uint64_t> counted = {};  // LAZY: the audit of what the epoch held, computed while it was read
  uint64_t parsed = 0;                   // the number of records that this rank has parsed for the epoch
  std::vector<uint64_t> lacking = {};    // by feature: the parsed records that lack it and got a default or no values
};

/// The sums of an epoch, for one rank or for all ranks together.
struct EpochSums {
  EpochEnd end;
  uint64_t delivered = 0;  // the audit of the delivered rows
};

/// The audit that an epoch must add up to.
struct ExpectedAudit {
  std::optional<uint64_t> sum;  // nullopt: unknown, and `why_none` says why
  std::string why_none = "the indexes do not say what an epoch holds";
  /// For `epoch.steps`. Epochs end within passes, so whole passes are compared: each pass at the end of the epoch in
  /// which it ends.
  struct Passes {
    PassBorders borders;
    uint64_t sum = 0;  // the audit of one pass
    uint64_t steps_per_epoch = 0;
  };
  std::optional<Passes> passes = {};
};

/// The sums of a finished epoch or, with ExpectedAudit::Passes, the sums of the passes that ended in the epoch.
struct FinishedEpoch {
  EpochSums sums;
  ExpectedAudit expected;
};

/// Compares the sums of all ranks with the expected audit, and returns the verdict.
EpochAudit judge(const EpochSums& sums, const ExpectedAudit& expected);

}  // namespace feedline::flow
