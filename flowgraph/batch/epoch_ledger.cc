#include "flowgraph/batch/epoch_ledger.h"

#include <utility>

namespace feedline::flow {

using Verdict = EpochAudit::Verdict;

EpochLedger::EpochLedger(size_t replicas, ExpectedAudit expected, bool alone, bool begins_within)
    : expected_(std::move(expected)),
      alone_(alone),
      delivered_(replicas),
      epochs_(replicas),
      begins_within_(begins_within) {}

void EpochLedger::ended(size_t replica, const EpochEnd& end) {
  const uint64_t number = epochs_[replica]++ - finished_;
  if (number == open_.size()) open_.push_back({{end}});
  Entry& entry = open_[number];
  const Sums sums = std::exchange(delivered_[replica], {});
  entry.delivered += sums.good;
  entry.bad_in_batches += sums.bad;
  if (++entry.replicas < epochs_.size()) return;
  if (!expected_.passes) entry.end.bad += entry.bad_in_batches;
  last_ = expected_.passes ? passes_ended_in(entry.end) : FinishedEpoch{std::move(entry), expected_};
  open_.pop_front();
  finished_++;
  if (audit(*last_).verdict == Verdict::differs) differing_++;
}

void EpochLedger::add_to_passes(uint64_t audit, const PassAudit& of) {
  // If the feed began within a pass, some lanes (the parallel sequences of samples in a pass) may have been in the next
  // pass already. So both passes are incomplete.
  if (!first_whole_) first_whole_ = begins_within_ ? of.pass + 2 : 0;
  passes_[of.pass] += audit - of.later;
  passes_[of.pass + 1] += of.later;
}

FinishedEpoch EpochLedger::passes_ended_in(const EpochEnd& end) {
  const ExpectedAudit::Passes& passes = *expected_.passes;
  const uint64_t ended = passes.borders.ended_before((end.epoch + 1) * passes.steps_per_epoch);
  FinishedEpoch finished{.sums = {.end = {.epoch = end.epoch}}, .expected = {.sum = {}, .why_none = {}}};
  uint64_t whole = 0;
  for (auto pass = passes_.begin(); pass != passes_.end() && pass->first < ended; pass = passes_.erase(pass)) {
    if (pass->first < first_whole_.value_or(0)) continue;
    finished.sums.delivered += pass->second;
    whole++;
  }
  if (end.bad != 0 || end.lost != 0 || !end.doubts.empty()) {
    first_whole_ = ended + 2;
    finished.expected.why_none = "this epoch had bad records, which may belong to the passes that ended in it";
  } else if (whole == 0) {
    finished.expected.why_none = "no pass that was fed from beginning to end ended in this epoch";
  } else {
    finished.expected.sum = whole * passes.sum;
  }
  return finished;
}

std::optional<EpochAudit> EpochLedger::last() const { return last_ ? std::optional(audit(*last_)) : std::nullopt; }

EpochAudit EpochLedger::audit(const FinishedEpoch& finished) const {
  EpochAudit audit = judge(finished.sums, finished.expected);
  if (alone_ || audit.verdict == Verdict::open) return audit;
  audit.verdict = Verdict::open;
  audit.why =
      "this rank fed only its part of the data; to compare all ranks, call Feeder::audit_ranks(), or use "
      "`feedline run --meet`";
  return audit;
}

}  // namespace feedline::flow
