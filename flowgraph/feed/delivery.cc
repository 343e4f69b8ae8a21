#include "flowgraph/feed/delivery.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/log.h"
#include "gpu/device/stream_order.h"
#include "ranks/current_error.h"

namespace feedline::flow {
namespace {

constexpr std::chrono::seconds watched_each{1};

Error error_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (...) {
    return current_error();
  }
}

}  // namespace

Delivery::Delivery(std::vector<std::shared_ptr<BatchRing>> rings, int host_prefetch, const Position& start,
                   EpochLedger epochs, std::function<Stage(int)> busy_stage, bool together)
    : apart_(static_cast<uint64_t>(host_prefetch)),
      busy_stage_(std::move(busy_stage)),
      together_(together),
      short_replicas_(rings.size()),
      arrived_(rings.size()),
      waits_(rings.size()),
      ledger_(rings.size(), start, std::move(epochs)) {
  for (auto& ring : rings) replicas_.emplace_back().ring = std::move(ring);
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

std::optional<size_t> Delivery::laggard(size_t number) const {
  const size_t slowest = ledger_.slowest();
  return ledger_.received(number) + 1 > ledger_.received(slowest) + apart_ ? std::optional(slowest) : std::nullopt;
}

void Delivery::throw_if_only_the_caller_can_help(size_t number, std::optional<size_t> laggard) const {
  if (laggard) {
    if (*laggard != number && replicas_[*laggard].served_by == std::this_thread::get_id())
      throw Error(
          Category::stalled,
          fmt::format(
              "replica {} is {} steps ahead of another replica for which the same thread calls next(); replicas may be "
              "at most {} steps apart (parallelism.host_prefetch); call next() for each replica in turn, or use one "
              "thread for each replica",
              number, ledger_.received(number) - ledger_.received(*laggard), apart_));
    return;
  }
  throw_if_all_is_held(number);
  for (size_t other = 0; together_ && other < replicas_.size(); other++)
    if (replicas_[other].served_by == std::this_thread::get_id()) throw_if_all_is_held(other);
}

// If the program holds all batches, throws only if the next thing to deliver is a batch, for which there is no buffer
// (Replica::out_of_buffers). The end of an epoch or an error needs no buffer, so it can still be delivered.
void Delivery::throw_if_all_is_held(size_t number) const {
  const Replica& replica = replicas_[number];
  const size_t held = replica.ring->held;
  if (held == replica.ring->pool().size() && replica.out_of_buffers)
    throw Error(
        Category::stalled,
        fmt::format("the program holds all {} batches of replica {}, so the next batch cannot be made; release a "
                    "batch, or set parallelism.{} to at least {}",
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

void Delivery::wait_for(const Arrive& arrive, const BatchContent& content, Batch& batch, size_t number) {
  waits_.begin(number, Stage::transfer);
  std::exception_ptr failure;
  {
    const Unlock unlocked(mutex_);
    try {
      arrive(batch);
    } catch (...) {
      failure = std::current_exception();
      batch = Batch();
      // The batch stays queued. It must not wait for the caller's stream later, because the caller may destroy that.
      if (content.order) content.order->let_go();
    }
  }
  waits_.end(number);
  if (failure) std::rethrow_exception(failure);
}

Delivery::Outcome Delivery::next(int of_replica, std::optional<Clock::time_point> deadline, Batch& batch, EpochEnd* end,
                                 const Arrive& arrive) {
  const auto start = Clock::now();
  check_replica(of_replica);
  const auto number = static_cast<size_t>(of_replica);
  batch = Batch();  // first gives back the batch that the caller had in it
  Lock lock(mutex_);
  Replica& replica = replicas_[number];
  replica.served_by = std::this_thread::get_id();
  const std::chrono::seconds most = others_ ? std::min(watched_each, long_wait) : long_wait;
  auto step = [&](auto now) { return std::min(deadline.value_or(now + most), now + most); };
  for (;;) {
    if (failure_) {
      failed_ = true;
      std::rethrow_exception(failure_);
    }
    if (stopped_) throw Error(Category::stalled, "the feeder was stopped");
    const std::optional<size_t> slowest = laggard(number);
    const bool ready = !slowest && !replica.ready.empty();
    // If this rank's own error has ended the feed, every replica is given that error, after the batches before it.
    // Without the check of `failed_` and `front().error`, the error that others_() returns would hide it: the other
    // ranks have failed because this rank told them of its error.
    if (others_ && !(ready && (failed_ || replica.ready.front().error)))
      if (const auto error = others_()) {
        error_ = in_step(ledger_.position(number), *error);
        throw *error_;
      }
    if (ready) break;
    throw_if_only_the_caller_can_help(number, slowest);
    const auto before = Clock::now();
    if (deadline && before >= *deadline) return Outcome::not_ready;
    const Stage stage = slowest ? Stage::replica : busy_stage_(of_replica);
    waits_.note_late(number, start);
    waits_.begin(number, stage);
    replica.too_far_ahead = slowest.has_value();
    arrived_[number].wait_until(lock, step(before));
    waits_.end(number);
    replica.too_far_ahead = false;
    if (waits_.is_long(number)) {
      const std::string message = waits_.is_to_be_told(number) ? long_wait_message(number, slowest, stage) : "";
      const bool has_none = !slowest && replica.ready.empty();
      lock.unlock();
      if (!message.empty()) log_warning(message);
      if (has_none && long_waited_) long_waited_();
      lock.lock();
    }
  }
  if (const auto& error = replica.ready.front().error) {
    failed_ = true;
    error_ = *error;
    throw *error;  // the error stays in the queue, so every further call throws it
  }
  if (const auto& content = replica.ready.front().batch) {
    batch = lend(replica, content);
    if (arrive) wait_for(arrive, *content, batch, number);  // if it throws, the same batch is next again
    ledger_.add(number, *content, replica.ready.front().passes);
  }
  // Destroyed when the function returns, after the lock has been released: Ready::keeps then gives its slot back.
  Ready ready = std::move(replica.ready.front());
  replica.ready.pop_front();
  const bool falls_short = replica.ready.empty();
  if (falls_short) short_replicas_++;
  const Outcome outcome = ready.batch ? Outcome::batch : Outcome::end_of_epoch;
  if (outcome == Outcome::end_of_epoch) {
    ledger_.end_epoch(number, ready.end);
    if (end) *end = std::move(ready.end);
  }
  const bool others_wait = std::ranges::any_of(replicas_, &Replica::too_far_ahead);
  waits_.given(number, outcome == Outcome::batch, start);
  lock.unlock();
  if (falls_short && tell_shortage_) tell_shortage_(of_replica);
  if (others_wait)
    for (Condition& other : arrived_) other.notify_one();
  return outcome;
}

std::string Delivery::long_wait_message(size_t number, std::optional<size_t> laggard, Stage stage) const {
  if (!laggard)
    return fmt::format("replica {} has waited {} s for the stage [{}]", number, long_wait.count(), name(stage));
  return fmt::format(
      "replica {} has waited {} s for replica {}, {}", number, long_wait.count(), *laggard,
      replicas_[*laggard].served_by ? "which is too many steps behind" : "for which next() has not been called yet");
}

DeliveryReport Delivery::report() const {
  const Lock lock(mutex_);
  std::set<std::thread::id> takers;
  for (const Replica& replica : replicas_)
    if (replica.served_by) takers.insert(*replica.served_by);
  return {ledger_.report(), waits_.report(), takers.size(), failure_ ? error_of(failure_) : error_};
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
                fmt::format("there is no replica {}; the replicas of this feeder are numbered from 0 to {}", number,
                            arrived_.size() - 1));
}

size_t Delivery::spare_batches(int replica) const {
  check_replica(replica);
  const Lock lock(mutex_);
  BatchRing& ring = *replicas_[static_cast<size_t>(replica)].ring;
  return ring.pool().size() - std::min<size_t>(ring.held, ring.pool().size());
}

DeliveryLedger::Positions Delivery::positions() const {
  const Lock lock(mutex_);
  return ledger_.positions();
}

}  // namespace feedline::flow
