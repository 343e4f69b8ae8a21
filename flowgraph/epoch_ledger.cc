#include "flowgraph/epoch_ledger.h"

#include <utility>

namespace feedline::flow {

using Verdict = EpochAudit::Verdict;

EpochLedger::EpochLedger(size_t replicas, ExpectedAudit expected, bool alone, std::shared_ptr<RankAudits> others)
    : expected_(std::move(expected)),
      alone_(alone),
      others_(std::move(others)),
      delivered_(replicas),
      epochs_(replicas) {}

void EpochLedger::ended(size_t replica, const EpochEnd& end) {
  const uint64_t number = epochs_[replica]++ - finished_;
  if (number == open_.size()) open_.push_back({{end}});
  Entry& entry = open_[number];
  entry.delivered += std::exchange(delivered_[replica], 0);
  if (++entry.replicas < epochs_.size()) return;
  last_ = std::move(open_.front());
  open_.pop_front();
  finished_++;
  if (audit(*last_).verdict == Verdict::differs) differing_++;
  if (others_) others_->add(*last_, expected_);
}

std::optional<EpochAudit> EpochLedger::last() const {
  if (!last_) return std::nullopt;
  if (others_)
    if (const auto of_all = others_->of_epoch(last_->end.epoch)) return of_all;
  return audit(*last_);
}

uint64_t EpochLedger::differing() const { return differing_ + (others_ ? others_->differing() : 0); }

EpochAudit EpochLedger::audit(const EpochSums& sums) const {
  EpochAudit audit = judge(sums, expected_);
  if ((alone_ && !others_) || audit.verdict == Verdict::open) return audit;
  audit.verdict = others_ && !others_->lost() ? Verdict::pending : Verdict::open;
  audit.why = !others_          ? "this is one of several ranks: add their parts"
              : others_->lost() ? "a rank was lost, or has left, before it ended this epoch"
                                : "not all ranks have ended this epoch yet";
  return audit;
}

}  // namespace feedline::flow
