#include "flowgraph/feed/delivery_ledger.h"

#include <algorithm>
#include <utility>

namespace feedline::flow {

DeliveryLedger::DeliveryLedger(size_t replicas, const Position& start, EpochLedger epochs)
    : replicas_(replicas, Replica{.position = start}), epochs_(std::move(epochs)) {}

void DeliveryLedger::add(size_t number, const BatchContent& batch, const PassAudit& passes) {
  Replica& replica = replicas_[number];
  replica.received++;
  replica.steps++;
  replica.position.step++;
  report_.counters.records += static_cast<uint64_t>(batch.valid_count);
  report_.counters.filler_rows += static_cast<uint64_t>(batch.rows - batch.valid_count);
  report_.audit += batch.audit;
  epochs_.delivered(number, {batch.audit, batch.bad_audit}, passes);
}

void DeliveryLedger::end_epoch(size_t number, const EpochEnd& end) {
  Replica& replica = replicas_[number];
  replica.received++;
  replica.epochs++;
  replica.position = {replica.position.epoch + 1, 0};
  report_.parsed = end.parsed;
  report_.lacking = end.lacking;
  epochs_.ended(number, end);
}

DeliveryLedger::Positions DeliveryLedger::positions() const {
  const auto [last, first] = std::ranges::minmax_element(replicas_, {}, &Replica::position);
  return {last->position, first->position};
}

size_t DeliveryLedger::slowest() const {
  return static_cast<size_t>(std::ranges::min_element(replicas_, {}, &Replica::received) - replicas_.begin());
}

DeliveredReport DeliveryLedger::report() const {
  DeliveredReport report = report_;
  report.counters.steps = std::ranges::min_element(replicas_, {}, &Replica::steps)->steps;
  report.finished_epochs = std::ranges::min_element(replicas_, {}, &Replica::epochs)->epochs;
  report.last_epoch = epochs_.last();
  report.counters.differing_epochs = epochs_.differing();
  return report;
}

}  // namespace feedline::flow
