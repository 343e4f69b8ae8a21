// A fixed set of items (slots, buffers, inflaters) that are taken from the pool, and are given back from any thread.
// The pools are the graph's backpressure.
//
// A call of take() that finds no item marks the pool hungry, in the same critical section. When items come back and a
// hungry pool has enough of them, give_back() clears the mark and notifies the owner once, also in one critical
// section. The owner must then take until the pool is dry. If the mark were not set in the critical section that found
// no item, but in a later one, an item could come back between the two, and the wake-up would be lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace feedline::flow {

template <typename T>
class Pool {
 public:
  /// Chooses the item that take() returns.
  enum class Next : uint8_t {
    newest,  // the item that came back last: its memory is the most likely to be in cache
    oldest,  // the item that came back first: a device is the most likely to have finished with it
  };
  explicit Pool(const std::vector<T>& items, Next next = Next::newest)
      : free_(items), size_(free_.size()), next_(next) {}

  /// Sets the function that notifies the owner. Must be called before the first take(). `kick` is called under the
  /// pool's lock: it must not use the pool, nor block.
  void on_return(std::function<void()> kick) {
    const Lock lock(mutex_);
    kick_ = std::move(kick);
  }

  /// Takes an item. Returns nothing if the pool has at most `keep` items left. Precondition: keep < size().
  std::optional<T> take(size_t keep = 0) {
    const Lock lock(mutex_);
    if (free_.size() <= keep) {
      hungry_ = true;
      if (!dry_since_) dry_since_ = Clock::now();
      return std::nullopt;
    }
    const auto chosen = next_ == Next::newest ? free_.end() - 1 : free_.begin();
    T item = std::move(*chosen);
    free_.erase(chosen);
    return item;
  }

  void give_back(T item) {
    const Lock lock(mutex_);
    free_.push_back(std::move(item));
    if (dry_since_) dry_time_ += Clock::now() - *std::exchange(dry_since_, std::nullopt);
    feed();
  }

  /// Sets how many items the pool must have before it notifies an owner that found it empty. With a large count, the
  /// owner is notified less often. If the owner waits now and the pool has that many items already, notifies it at
  /// once.
  void set_enough(size_t count) {
    const Lock lock(mutex_);
    enough_ = count;
    feed();
  }

  /// Stops notifying the owner. Items can still be given back.
  void close() {
    const Lock lock(mutex_);
    kick_ = nullptr;
  }

  /// The number of all items, taken or not.
  size_t size() const noexcept { return size_; }
  /// Returns whether a take() has found nothing and no item has come back since.
  bool dry() const {
    const Lock lock(mutex_);
    return dry_since_.has_value();
  }
  /// Returns for how many seconds in total the pool has been dry.
  double dry_s() const {
    const Lock lock(mutex_);
    const auto now = dry_since_ ? Clock::now() - *dry_since_ : Clock::duration(0);
    return std::chrono::duration<double>(dry_time_ + now).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Notifies the owner if the pool is hungry and has enough items.
  void feed() FEEDLINE_REQUIRES(mutex_) {
    if (!hungry_ || free_.size() < enough_) return;
    hungry_ = false;
    if (kick_) kick_();
  }

  mutable Mutex mutex_;
  // The free items, in the order in which they came back. There are never more than at the beginning, so give_back()
  // does not allocate.
  std::vector<T> free_ FEEDLINE_GUARDED_BY(mutex_);
  const size_t size_;
  const Next next_;
  std::function<void()> kick_ FEEDLINE_GUARDED_BY(mutex_);
  size_t enough_ FEEDLINE_GUARDED_BY(mutex_) = 1;
  // A take() has found nothing, and the owner has not been notified since.
  bool hungry_ FEEDLINE_GUARDED_BY(mutex_) = false;
  std::optional<Clock::time_point> dry_since_ FEEDLINE_GUARDED_BY(mutex_);
  Clock::duration dry_time_ FEEDLINE_GUARDED_BY(mutex_){0};
};

/// Returns a pointer to each item of a container, for a pool of pointers.
template <typename Items>
std::vector<typename Items::value_type*> pointers_to(Items& items) {
  std::vector<typename Items::value_type*> pointers;
  for (auto& item : items) pointers.push_back(&item);
  return pointers;
}

}  // namespace feedline::flow
