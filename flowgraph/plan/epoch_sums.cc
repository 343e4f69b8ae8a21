#include "flowgraph/plan/epoch_sums.h"

#include <fmt/format.h>

#include <span>

namespace feedline::flow {
namespace {

using Verdict = EpochAudit::Verdict;

// Returns whether a subset of `doubts` (EpochEnd::doubts) adds up to `missing` (mod 2^64). The empty subset adds up to
// 0.
bool explained(uint64_t missing, std::span<const uint64_t> doubts) {
  if (missing == 0) return true;
  if (doubts.empty()) return false;
  return explained(missing - doubts[0], doubts.subspan(1)) || explained(missing, doubts.subspan(1));
}

}  // namespace

EpochAudit judge(const EpochSums& sums, const ExpectedAudit& of_epoch) {
  const EpochEnd& end = sums.end;
  const std::optional<uint64_t> expected = end.counted ? end.counted : of_epoch.sum;
  EpochAudit audit{.epoch = end.epoch,
                   .delivered = sums.delivered,
                   .dropped = end.dropped,
                   .bad = end.bad,
                   .expected = expected.value_or(0),
                   .verdict = Verdict::open,
                   .why = {}};
  const uint64_t missing = audit.expected - (audit.delivered + audit.dropped + audit.bad);
  if (!expected)
    audit.why = of_epoch.why_none;
  else if (end.first_step > 0)
    audit.why = fmt::format("the feed began at step {}", end.first_step);
  else if (end.lost > 0)
    audit.why = fmt::format("{} records were lost: a length was damaged after the data was counted", end.lost);
  else if (missing != 0 && end.doubts.size() > doubts_tried)
    audit.why = "the checksums of many records were damaged after the data was counted";
  else
    audit.verdict = explained(missing, end.doubts) ? Verdict::holds : Verdict::differs;
  return audit;
}

}  // namespace feedline::flow
