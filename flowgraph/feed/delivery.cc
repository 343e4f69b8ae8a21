#include "flowgraph/feed/delivery.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/log.h"
#include "gpu/device/stream_order.h"

namespace feedline::flow {
namespace {

constexpr std::chrono::seconds watched_each{1};

Error error_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(Category::io_error, error.what());
  }
}

}  // namespace

const char* name(Stage stage) noexcept {
  constexpr const char* names[] = {"read", "inflate", "parse", "unpack", "transfer", "upload", "another replica"};
  return names[static_cast<size_t>(stage)];
}

Delivery::Delivery(std::vector<std::shared_ptr<BatchRing>> rings, int host_prefetch, const Position& start,
                   EpochLedger ledger, std::function<Stage(int)> busy_stage, bool together)
    : apart_(static_cast<uint64_t>(host_prefetch)),
      busy_stage_(std::move(busy_stage)),
      together_(together),
      short_replicas_(rings.size()),
      arrived_(rings.size()),
      ledger_(std::move(ledger)) {
  for (auto& ring : rings) {
    Replica& replica = replicas_.emplace_back();
    replica.ring = std::move(ring);
    replica.position = start;
  }
}

void Delivery::put_all(int number, std::span<Ready> ready) {
  {
    const Lock lock(mutex_);
    Replica& replica = replicas_[static_cast<size_t>(number)];
    if (replica.ready.empty() && !ready.empty()) short_replicas_--;
    std::move(ready.begin(), ready.end(), std::back_inserter(replica.ready));
    replica.out_of_buffers = false;
  }
  arrived_[static_cast<size_t>(number)].notify_one();
}

// Sets the flag under the lock. So a next() either looks at the flag afterwards, or already waits and is woken below.
void Delivery::out_of_buffers(int number) {
  {
    const Lock lock(mutex_);
    Replica& replica = replicas_[static_cast<size_t>(number)];
    replica.out_of_buffers = true;
    if (replica.ring->held < replica.ring->pool().size()) return;
  }
  for (size_t other = 0; other < arrived_.size(); other++)
    if (other == static_cast<size_t>(number) || together_) arrived_[other].notify_one();
}

void Delivery::fail(std::exception_ptr error) noexcept {
  {
    const Lock lock(mutex_);
    if (!failure_) failure_ = std::move(error);
  }
  for (Condition& arrived : arrived_) arrived.notify_all();
}

void Delivery::stop() noexcept {
  {
    const Lock lock(mutex_);
    stopped_ = true;
  }
  for (Condition& arrived : arrived_) arrived.notify_all();
}

const Delivery::Replica* Delivery::laggard(const Replica& replica) const {
  const auto last = std::ranges::min_element(replicas_, {}, &Replica::received);
  return replica.received + 1 > last->received + apart_ ? &*last : nullptr;
}

void Delivery::throw_if_only_the_caller_can_help(int number, const Replica& replica, const Replica* laggard) const {
  if (laggard) {
    if (laggard != &replica && laggard->served_by == std::this_thread::get_id())
      throw Error(
          Category::stalled,
          fmt::format(
              "replica {} is {} steps ahead of a replica that this same thread serves; replicas run at most "
              "parallelism.host_prefetch = {} steps apart: call next() for each replica in turn, or give each a thread",
              number, replica.received - laggard->received, apart_));
    return;
  }
  throw_if_all_is_held(number);
  for (size_t other = 0; together_ && other < replicas_.size(); other++)
    if (replicas_[other].served_by == std::this_thread::get_id()) throw_if_all_is_held(static_cast<int>(other));
}

// Throws only if a batch is next and has no buffer (out_of_buffers). The end of an epoch or an error needs no buffer,
// so a caller may hold all batches until then.
void Delivery::throw_if_all_is_held(int number) const {
  const Replica& replica = replicas_[static_cast<size_t>(number)];
  const size_t held = replica.ring->held;
  if (held == replica.ring->pool().size() && replica.out_of_buffers)
    throw Error(
        Category::stalled,
        fmt::format("the caller holds all {} batches of replica {}, so no other can be made; release one, or set "
                    "parallelism.{} to at least {}",
                    held, number, replica.ring->on_device() ? "device_prefetch" : "host_prefetch", held));
}

Batch Delivery::lend(const Replica& replica, std::shared_ptr<const BatchContent> given) {
  replica.ring->held++;
  const BatchContent* content = given.get();
  return Batch({content, [given = std::move(given), ring = replica.ring](const BatchContent*) mutable {
                  ring->held--;
                  given.reset();
                }});
}

void Delivery::wait_for(const Arrive& arrive, const BatchContent& content, Batch& batch, Replica& replica) {
  replica.waiting = {Stage::transfer, Clock::now()};
  std::exception_ptr failure;
  {
    const Unlock unlocked(mutex_);
    try {
      arrive(batch);
    } catch (...) {
      failure = std::current_exception();
      batch = Batch();
      if (content.order) content.order->let_go();  // the batch stays here, and the caller's stream may end
    }
  }
  add_wait(replica);
  if (failure) std::rethrow_exception(failure);
}

void Delivery::add_wait(Replica& replica) {
  report_.waited_s[static_cast<size_t>(replica.waiting->stage)] +=
      std::chrono::duration<double>(Clock::now() - replica.waiting->since).count();
  replica.waiting.reset();
}

// Sets the waits to 0 at the first batch, because the report has the time before it as the time of the start.
void Delivery::begin_clock(Clock::time_point first_batch) {
  report_.first_batch = first_batch;
  std::fill(std::begin(report_.waited_s), std::end(report_.waited_s), 0);
  for (Replica& replica : replicas_)
    if (replica.waiting) replica.waiting->since = first_batch;
}

void Delivery::count_batch(size_t number, const BatchContent& batch, const PassAudit& passes) {
  Replica& replica = replicas_[number];
  replica.received++;
  replica.steps++;
  replica.position.step++;
  report_.counters.records += static_cast<uint64_t>(batch.valid_count);
  report_.counters.filler_rows += static_cast<uint64_t>(batch.rows - batch.valid_count);
  report_.audit += batch.audit;
  ledger_.delivered(number, {batch.audit, batch.bad_audit}, passes);
}

void Delivery::count_end(size_t number, const EpochEnd& end) {
  Replica& replica = replicas_[number];
  replica.received++;
  replica.epochs++;
  replica.position = {replica.position.epoch + 1, 0};
  report_.parsed = end.parsed;
  report_.lacking = end.lacking;
  ledger_.ended(number, end);
}

Delivery::Outcome Delivery::next(int number, std::optional<Clock::time_point> deadline, Batch& batch, EpochEnd* end,
                                 const Arrive& arrive) {
  const auto start = Clock::now();
  check_replica(number);
  batch = Batch();  // the batch that the caller had in it goes back first
  Lock lock(mutex_);
  Replica& replica = replicas_[static_cast<size_t>(number)];
  replica.served_by = std::this_thread::get_id();
  const std::chrono::seconds most = others_ ? std::min(watched_each, long_wait) : long_wait;
  auto step = [&](auto now) { return std::min(deadline.value_or(now + most), now + most); };
  for (;;) {
    if (failure_) {
      failed_ = true;
      std::rethrow_exception(failure_);
    }
    if (stopped_) throw Error(Category::stalled, "the feeder was stopped");
    const Replica* const slowest = laggard(replica);
    const bool ready = !slowest && !replica.ready.empty();
    // If this rank's own error has ended the feed, every replica is given that error, after the batches before it.
    // Without the check of `failed_` and `front().error`, the error that others_() returns would hide it: the other
    // ranks have failed because this rank told them of its error.
    if (others_ && !(ready && (failed_ || replica.ready.front().error)))
      if (const auto error = others_()) {
        report_.error = in_step(replica.position, *error);
        throw *report_.error;
      }
    if (ready) break;
    throw_if_only_the_caller_can_help(number, replica, slowest);
    const auto before = Clock::now();
    if (deadline && before >= *deadline) return Outcome::not_ready;
    const Stage stage = slowest ? Stage::replica : busy_stage_(number);
    if (!replica.waits_since) replica.waits_since = start;
    replica.too_far_ahead = slowest != nullptr;
    replica.waiting = {stage, before};
    arrived_[static_cast<size_t>(number)].wait_until(lock, step(before));
    add_wait(replica);
    replica.too_far_ahead = false;
    if (Clock::now() - *replica.waits_since >= long_wait) {
      const std::string message = replica.told ? "" : long_wait_message(number, slowest, stage);
      const bool has_none = !slowest && replica.ready.empty();
      replica.told = true;
      lock.unlock();
      if (!message.empty()) log_warning(message);
      if (has_none && long_waited_) long_waited_();
      lock.lock();
    }
  }
  const bool is_first = replica.steps == 0;
  if (const auto& error = replica.ready.front().error) {
    failed_ = true;
    report_.error = *error;
    throw *error;  // it stays in the queue, so every further call throws it
  }
  if (const auto& content = replica.ready.front().batch) {
    batch = lend(replica, content);
    if (arrive) wait_for(arrive, *content, batch, replica);  // if it throws, this is still the next batch
    count_batch(static_cast<size_t>(number), *content, replica.ready.front().passes);
  }
  Ready ready = std::move(replica.ready.front());  // Ready::keeps is released after the lock
  replica.ready.pop_front();
  const bool falls_short = replica.ready.empty();
  if (falls_short) short_replicas_++;
  const Outcome outcome = ready.batch ? Outcome::batch : Outcome::end_of_epoch;
  if (outcome == Outcome::end_of_epoch) {
    count_end(static_cast<size_t>(number), ready.end);
    if (end) *end = std::move(ready.end);
  }
  const bool others_wait = std::ranges::any_of(replicas_, &Replica::too_far_ahead);
  const auto now = Clock::now();
  if (outcome == Outcome::batch) {
    if (!report_.first_batch) begin_clock(now);
    if (!is_first) {
      report_.next.add(now - replica.waits_since.value_or(start));
      report_.next_calls++;
      if (!replica.waits_since) report_.next_ready++;
    }
  }
  replica.waits_since.reset();
  replica.told = false;
  lock.unlock();
  if (falls_short && tell_shortage_) tell_shortage_(number);
  if (others_wait)
    for (Condition& other : arrived_) other.notify_one();
  return outcome;
}

std::string Delivery::long_wait_message(int number, const Replica* laggard, Stage stage) const {
  if (!laggard) return fmt::format("replica {} has waited {} s for [{}]", number, long_wait.count(), name(stage));
  const auto other = std::find_if(replicas_.begin(), replicas_.end(), [&](const Replica& r) { return &r == laggard; }) -
                     replicas_.begin();
  return fmt::format("replica {} has waited {} s for replica {}, {}", number, long_wait.count(), other,
                     laggard->served_by ? "which is too many steps behind" : "which nobody has called next() for yet");
}

DeliveryReport Delivery::report() const {
  const Lock lock(mutex_);
  DeliveryReport report = report_;
  if (failure_) report.error = error_of(failure_);
  const auto now = Clock::now();
  std::set<std::thread::id> takers;
  for (const Replica& replica : replicas_)
    if (replica.served_by) takers.insert(*replica.served_by);
  report.takers = takers.size();
  for (const Replica& replica : replicas_)
    if (replica.waiting)
      report.waited_s[static_cast<size_t>(replica.waiting->stage)] +=
          std::chrono::duration<double>(now - replica.waiting->since).count();
  report.counters.steps = std::ranges::min_element(replicas_, {}, &Replica::steps)->steps;
  report.finished_epochs = std::ranges::min_element(replicas_, {}, &Replica::epochs)->epochs;
  report.last_epoch = ledger_.last();
  report.counters.differing_epochs = ledger_.differing();
  return report;
}

std::optional<FinishedEpoch> Delivery::last_sums() const {
  const Lock lock(mutex_);
  return ledger_.last_sums();
}

size_t Delivery::waiting_batches(int replica) const {
  const Lock lock(mutex_);
  return replicas_[static_cast<size_t>(replica)].ready.size();
}

void Delivery::check_replica(int number) const {
  if (number < 0 || static_cast<size_t>(number) >= arrived_.size())
    throw Error(Category::bad_pipeline,
                fmt::format("there is no replica {}: the feeder has {}, numbered from 0", number, arrived_.size()));
}

size_t Delivery::spare_batches(int replica) const {
  check_replica(replica);
  const Lock lock(mutex_);
  BatchRing& ring = *replicas_[static_cast<size_t>(replica)].ring;
  return ring.pool().size() - std::min<size_t>(ring.held, ring.pool().size());
}

Delivery::Positions Delivery::positions() const {
  const Lock lock(mutex_);
  const auto [last, first] = std::ranges::minmax_element(replicas_, {}, &Replica::position);
  return {last->position, first->position};
}

}  // namespace feedline::flow
