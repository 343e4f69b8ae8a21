// Mutexes whose use clang checks. A member names the mutex that guards it, and a function the mutex that its caller
// must hold. A build with clang (-Wthread-safety), such as that of `./dev fuzz`, refuses code that breaks these rules.
// The macros and types follow clang.llvm.org/docs/ThreadSafetyAnalysis.html. For other compilers the macros are empty.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#ifdef __clang__
#define FEEDLINE_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define FEEDLINE_THREAD_SAFETY(attribute)
#endif

/// Marks a class whose objects hold a mutex from their construction to their destruction.
#define FEEDLINE_SCOPED_CAPABILITY FEEDLINE_THREAD_SAFETY(scoped_lockable)
/// Marks a member that is read and written only while this mutex is held.
#define FEEDLINE_GUARDED_BY(mutex) FEEDLINE_THREAD_SAFETY(guarded_by(mutex))
/// Marks a pointer whose target is read and written only while this mutex is held.
#define FEEDLINE_PT_GUARDED_BY(mutex) FEEDLINE_THREAD_SAFETY(pt_guarded_by(mutex))
/// Marks a function whose caller must hold this mutex, and still holds it afterwards.
#define FEEDLINE_REQUIRES(mutex) FEEDLINE_THREAD_SAFETY(requires_capability(mutex))
/// Marks a function whose caller must not hold this mutex, because the function locks it.
#define FEEDLINE_EXCLUDES(mutex) FEEDLINE_THREAD_SAFETY(locks_excluded(mutex))
/// Marks a function that locks this mutex or, if no mutex is named, the mutex of its object.
#define FEEDLINE_ACQUIRE(...) FEEDLINE_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
/// Marks a function that unlocks this mutex or, if no mutex is named, the mutex of its object.
#define FEEDLINE_RELEASE(...) FEEDLINE_THREAD_SAFETY(release_capability(__VA_ARGS__))
/// Marks a function whose body clang does not check. A comment beside it says why the body is right.
#define FEEDLINE_NO_THREAD_SAFETY_ANALYSIS FEEDLINE_THREAD_SAFETY(no_thread_safety_analysis)

namespace feedline {

class FEEDLINE_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  void lock() FEEDLINE_ACQUIRE() { mutex_.lock(); }
  void unlock() FEEDLINE_RELEASE() { mutex_.unlock(); }

 private:
  friend class Lock;
  std::mutex mutex_;
};

/// Holds a mutex from its construction to its destruction, except between unlock() and lock().
class FEEDLINE_SCOPED_CAPABILITY Lock {
 public:
  explicit Lock(Mutex& mutex) FEEDLINE_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~Lock() FEEDLINE_RELEASE() {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void lock() FEEDLINE_ACQUIRE() { lock_.lock(); }
  void unlock() FEEDLINE_RELEASE() { lock_.unlock(); }

 private:
  friend class Condition;
  std::unique_lock<std::mutex> lock_;
};

/// The opposite of a Lock: unlocks the mutex at its construction, and locks it again at its destruction. The thread
/// that makes it must hold the mutex.
class FEEDLINE_SCOPED_CAPABILITY Unlock {
 public:
  explicit Unlock(Mutex& mutex) FEEDLINE_RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  // clang wants RELEASE at the destructor of every scoped capability, even if the destructor locks the mutex again.
  ~Unlock() FEEDLINE_RELEASE() { mutex_.lock(); }
  Unlock(const Unlock&) = delete;
  Unlock& operator=(const Unlock&) = delete;

 private:
  Mutex& mutex_;
};

/// A std::condition_variable for a Lock. A wait unlocks the mutex, and has locked it again when it returns. A predicate
/// that reads guarded members must be a lambda with FEEDLINE_REQUIRES.
class Condition {
 public:
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }

  void wait(Lock& lock) { condition_.wait(lock.lock_); }
  template <typename Predicate>
  void wait(Lock& lock, Predicate predicate) {
    condition_.wait(lock.lock_, std::move(predicate));
  }
  /// Waits until the predicate holds, but no longer than `most`. Returns what the predicate returned last.
  template <typename Duration, typename Predicate>
  bool wait_for(Lock& lock, const Duration& most, Predicate predicate) {
    return condition_.wait_for(lock.lock_, most, std::move(predicate));
  }
  /// Waits for a notification until the deadline. May return earlier, even if nobody has notified.
  template <typename TimePoint>
  void wait_until(Lock& lock, const TimePoint& deadline) {
    condition_.wait_until(lock.lock_, deadline);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace feedline
