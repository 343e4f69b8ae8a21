#include "flowgraph/epoch_ledger.h"

#include <fmt/format.h>

#include <span>
#include <utility>

namespace feedline::flow {
namespace {

// Whether some of the doubts add up to what is missing.
bool explained(uint64_t missing, std::span<const uint64_t> doubts) {
  if (missing == 0) return true;
  if (doubts.empty()) return false;
  return explained(missing - doubts[0], doubts.subspan(1)) || explained(missing, doubts.subspan(1));
}

}  // namespace

EpochLedger::EpochLedger(size_t replicas, std::optional<uint64_t> expected, bool alone)
    : expected_(expected), alone_(alone), delivered_(replicas), epochs_(replicas) {}

void EpochLedger::ended(size_t replica, const EpochEnd& end) {
  const uint64_t number = epochs_[replica]++ - finished_;
  if (number == open_.size()) open_.push_back({end});
  Entry& entry = open_[number];
  entry.delivered += std::exchange(delivered_[replica], 0);
  if (++entry.replicas < epochs_.size()) return;
  last_ = std::move(open_.front());
  open_.pop_front();
  finished_++;
  if (audit(*last_).verdict == EpochAudit::Verdict::differs) differing_++;
}

std::optional<EpochAudit> EpochLedger::last() const { return last_ ? std::optional(audit(*last_)) : std::nullopt; }

EpochAudit EpochLedger::audit(const Entry& entry) const {
  using Verdict = EpochAudit::Verdict;
  const EpochEnd& end = entry.end;
  const std::optional<uint64_t> expected = end.counted ? end.counted : expected_;
  EpochAudit audit{.epoch = end.epoch,
                   .delivered = entry.delivered,
                   .dropped = end.dropped,
                   .bad = end.bad,
                   .expected = expected.value_or(0),
                   .verdict = Verdict::open,
                   .why = {}};
  const uint64_t missing = audit.expected - (audit.delivered + audit.dropped + audit.bad);
  if (!expected)
    audit.why = "the indexes do not say what an epoch holds";
  else if (end.first_step > 0)
    audit.why = fmt::format("the feed began at step {}", end.first_step);
  else if (end.lost > 0)
    audit.why = fmt::format("{} records were lost: a length was damaged after the data was counted", end.lost);
  else if (!alone_)
    audit.why = "this is one of several ranks: add their parts";
  else if (missing != 0 && end.doubts.size() > doubts_tried)
    audit.why = "the checksums of many records were damaged after the data was counted";
  else
    audit.verdict = explained(missing, end.doubts) ? Verdict::holds : Verdict::differs;
  return audit;
}

}  // namespace feedline::flow
