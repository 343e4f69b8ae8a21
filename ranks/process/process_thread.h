// The background thread of a rank that is a process. It carries out the operations on the links, sends heartbeats to
// the next rank of the ring of ranks, and expects heartbeats from the rank before this one. So the thread of the
// trainer never blocks in a call that nothing could interrupt, and a trainer that pauses between two calls still sends
// heartbeats.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "ranks/group_failure.h"
#include "ranks/process/process_links.h"

namespace feedline::ranks {

class ProcessThread {
 public:
  using Begin = std::function<void(Links&)>;

  /// Starts the thread. timeout: how long a rank may send no heartbeat before the group ends.
  ProcessThread(std::shared_ptr<Links> links, std::chrono::milliseconds timeout);
  /// Tells the other ranks that this one leaves, and ends the thread.
  ~ProcessThread();
  ProcessThread(const ProcessThread&) = delete;
  ProcessThread& operator=(const ProcessThread&) = delete;

  int rank() const noexcept { return links_->rank(); }
  int size() const noexcept { return links_->size(); }
  /// Returns how many calls of the communicator are finished.
  uint64_t calls() const noexcept { return calls_; }
  void finish_call() noexcept { calls_++; }

  /// Calls `begin` in the thread, and returns when the operation that `begin` has begun is complete. Throws the Error
  /// that has ended the group. After that Error the thread does not use the buffers any more, unless
  /// Links::keeps_buffers() is true.
  void run(const Begin& begin);

  /// Ends the group with `why`, unless it has ended already, and tells the other ranks. Returns the Error that has
  /// ended the group.
  Error fail(const Error& why) { return end(why, true); }

  std::optional<Error> failure() const { return failure_.get(); }
  bool keeps_buffers() const noexcept { return links_->keeps_buffers(); }

 private:
  using Clock = std::chrono::steady_clock;

  Error end(const Error& why, bool tell);
  void loop();
  bool drive();
  bool go_on(const Begin& begin);
  void take(int from, const Note& note);
  void watch();
  void beat();
  void tell_all(const Note& note);
  int neighbour(int direction) const;

  const std::shared_ptr<Links> links_;
  const std::chrono::milliseconds timeout_;
  std::atomic<uint64_t> calls_{0};

  Mutex mutex_;
  Condition done_;
  const Begin* begin_ FEEDLINE_GUARDED_BY(mutex_) = nullptr;  // the operation that run() waits for; null if none
  // True while thread_ is inside go_on(). It then uses the buffers of *begin_, and begin_ must not change.
  bool driving_ FEEDLINE_GUARDED_BY(mutex_) = false;
  GroupFailure failure_;  // set with the mutex held
  // True if thread_ must still send failure_ to the other ranks.
  bool to_tell_ FEEDLINE_GUARDED_BY(mutex_) = false;
  // True if thread_ must end. Only the destructor sets it.
  bool ending_ FEEDLINE_GUARDED_BY(mutex_) = false;

  // Members that only the background thread uses.
  bool begun_ = false;                         // *begin_ has been called
  std::vector<std::optional<uint64_t>> left_;  // for each rank that has left, how many calls it had finished
  int watched_ = -1;                           // the rank from which this one expects heartbeats
  Clock::time_point last_beat_, last_heard_, last_listened_;
  std::thread thread_;
};

}  // namespace feedline::ranks
