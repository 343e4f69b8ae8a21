// The thread of a rank that is a process: it drives what is under way, tells the next rank that this one lives, and
// watches over the one before it. So a trainer's thread never waits where nothing could wake it, and a trainer that
// pauses is known to live.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ranks/group_failure.h"
#include "ranks/process/process_links.h"

namespace feedline::gpu {

class Progress {
 public:
  using Begin = std::function<void(Links&)>;

  /// timeout: how long a rank may be silent.
  Progress(std::shared_ptr<Links> links, std::chrono::milliseconds timeout);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  int rank() const noexcept { return links_->rank(); }
  int size() const noexcept { return links_->size(); }
  uint64_t calls() const noexcept { return calls_; }  // that are finished
  void finish_call() noexcept { calls_++; }

  /// Begins something in the thread, and returns when it is done. Throws what has ended the group; buffers are then
  /// used no more, but where Links::keeps_buffers().
  void run(const Begin& begin);

  /// Ends the group, unless it has ended; the reason that it ends for.
  Error fail(const Error& why) { return end(why, true); }

  std::optional<Error> failure() const { return failure_.get(); }
  bool keeps_buffers() const noexcept { return links_->keeps_buffers(); }

 private:
  using Clock = std::chrono::steady_clock;

  Error end(const Error& why, bool tell);
  void loop();
  bool drive();
  bool go_on();
  void listen();
  void take(int from, const Note& note);
  void watch();
  void beat();
  void tell_all(const Note& note);
  int neighbour(int direction) const;

  const std::shared_ptr<Links> links_;
  const std::chrono::milliseconds timeout_;
  std::atomic<uint64_t> calls_{0};

  std::mutex mutex_;  // guards the next six
  std::condition_variable done_;
  const Begin* begin_ = nullptr;  // what is under way
  bool driving_ = false;          // the thread is at it: buffers are used
  GroupFailure failure_;
  bool to_tell_ = false, ending_ = false;

  // The thread's own.
  bool begun_ = false;
  std::vector<std::optional<uint64_t>> left_;  // calls that a rank had finished when it left
  int watched_ = -1;
  Clock::time_point last_beat_, last_heard_, last_listened_;
  std::thread thread_;
};

}  // namespace feedline::gpu
