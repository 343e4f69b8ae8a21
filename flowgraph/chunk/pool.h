// A bounded set of things that are taken, and come back from any thread.
//
// A take that finds nothing marks the pool hungry, under the lock of the look; the return after which a hungry pool has
// enough clears the mark and kicks the owner once, under the same lock. The owner then takes until the pool is dry.
// Anything looser loses wake-ups: a mark set after the look stalled in every run on two CPUs.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace feedline::flow {

template <typename T>
class Pool {
 public:
  enum class Next : uint8_t {
    newest,  // what came back last: its memory is the likeliest to be in cache
    oldest,  // what came back first: a device is the likeliest to have done with it
  };
  explicit Pool(const std::vector<T>& items, Next next = Next::newest)
      : free_(items), size_(free_.size()), next_(next) {}

  /// Set before the first take. `kick` is called under the pool's lock: it must not touch the pool, nor block.
  void on_return(std::function<void()> kick) {
    const std::lock_guard lock(mutex_);
    kick_ = std::move(kick);
  }

  /// keep: so many stay behind, fewer than all.
  std::optional<T> take(size_t keep = 0) {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(item));
    if (dry_since_) dry_time_ += Clock::now() - *std::exchange(dry_since_, std::nullopt);
    feed();
  }

  /// How many things are worth a kick: many, where the owner can wait and is to be woken rarely. Kicks at once if there
  /// are that many.
  void set_enough(size_t count) {
    const std::lock_guard lock(mutex_);
    enough_ = count;
    feed();
  }

  /// From now on nothing is kicked; things still come back.
  void close() {
    const std::lock_guard lock(mutex_);
    kick_ = nullptr;
  }

  size_t size() const noexcept { return size_; }
  /// Whether a take has found nothing and nothing has come back since.
  bool dry() const {
    const std::lock_guard lock(mutex_);
    return dry_since_.has_value();
  }
  /// For how long it was so, in seconds.
  double dry_s() const {
    const std::lock_guard lock(mutex_);
    const auto now = dry_since_ ? Clock::now() - *dry_since_ : Clock::duration(0);
    return std::chrono::duration<double>(dry_time_ + now).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Under the lock.
  void feed() {
    if (!hungry_ || free_.size() < enough_) return;
    hungry_ = false;
    if (kick_) kick_();
  }

  mutable std::mutex mutex_;
  std::vector<T> free_;  // the oldest first; never more than at the beginning, so giving back allocates nothing
  const size_t size_;
  const Next next_;
  std::function<void()> kick_;
  size_t enough_ = 1;
  bool hungry_ = false;  // a take has found nothing, and nobody was kicked since
  std::optional<Clock::time_point> dry_since_;
  Clock::duration dry_time_{0};
};

}  // namespace feedline::flow
