#include "flowgraph/feed/workers.h"

#include <exception>
#include <utility>

#include "base/thread.h"

namespace feedline::flow {
namespace {

// The number of times that a thread in haste looks for a ring before it sleeps. This takes about 50 us, which is how
// long it takes to fall asleep and to be woken.
constexpr int looks = 100;

}  // namespace

// A thread that goes to sleep counts itself in asleep_ before it reads rings_. A thread that rings counts up rings_
// before it reads asleep_. So at least one of the two sees the other, and no wake-up is lost.
void Workers::Bell::ring(bool in_haste) noexcept {
  if (in_haste && !haste_.load(std::memory_order_relaxed)) haste_ = true;
  rings_++;
  if (asleep_ == 0) return;
  // A thread that has not seen this ring may be about to wait. It holds the lock until it waits. So once the lock could
  // be taken here, that thread waits, and notify_all() wakes it.
  { const Lock lock(mutex_); }
  changed_.notify_all();
}

void Workers::Bell::end() noexcept {
  {
    const Lock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

bool Workers::Bell::wait(uint64_t& heard) {
  if (haste_.exchange(false))
    for (int i = 0; i < looks && rings_ == heard; i++) std::this_thread::yield();
  Lock lock(mutex_);
  asleep_++;
  changed_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return ended_ || rings_ != heard; });
  asleep_--;
  heard = rings_;
  return !ended_;
}

Workers::Workers(int threads, std::function<void()> run) : run_(std::move(run)) {
  threads_.reserve(static_cast<size_t>(threads));
  threads_.push_back(start_thread("feedline", [this] { loop(first_); }));
  try {
    while (threads_.size() < static_cast<size_t>(threads))
      threads_.push_back(start_thread("feedline", [this] { loop(others_); }));
  } catch (const std::exception&) {
    // The threads that were started do the work.
  }
}

void Workers::end() noexcept {
  first_.end();
  others_.end();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::loop(Bell& bell) {
  uint64_t heard = 0;
  while (bell.wait(heard)) run_();
  run_();
}

}  // namespace feedline::flow
