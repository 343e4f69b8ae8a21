#include "ranks/process/process_thread.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/leak.h"
#include "base/thread.h"
#include "ranks/collective_call.h"
#include "ranks/current_error.h"

namespace feedline::ranks {

ProcessThread::ProcessThread(std::shared_ptr<Links> links, std::chrono::milliseconds timeout)
    : links_(std::move(links)),
      timeout_(std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(24 * 365))),
      left_(static_cast<size_t>(links_->size())) {
  try {
    thread_ = start_thread("feedline-ranks", [this] { loop(); });
  } catch (const std::system_error& error) {
    throw Error(Category::io_error, fmt::format("the communicator's thread cannot be started: {}", error.what()));
  }
}

ProcessThread::~ProcessThread() {
  {
    const Lock lock(mutex_);
    ending_ = true;
  }
  links_->wake();
  thread_.join();
  if (failure_ && links_->keeps_buffers()) leak(links_);
}

void ProcessThread::run(const Begin& begin) {
  Lock lock(mutex_);
  if (failure_) throw *failure_;
  begin_ = &begin;
  links_->wake();
  done_.wait(lock, [&]() FEEDLINE_REQUIRES(mutex_) { return !begin_ || (failure_ && !driving_); });
  if (std::exchange(begin_, nullptr)) throw *failure_;
}

Error ProcessThread::end(const Error& why, bool tell) {
  const Lock lock(mutex_);
  if (!failure_) {
    failure_.set(why);
    to_tell_ = tell;
    done_.notify_all();
    links_->wake();
  }
  return *failure_;
}

void ProcessThread::loop() {
  using std::chrono::milliseconds;
  const auto idle = std::clamp<milliseconds>(timeout_ / 20, milliseconds(1), milliseconds(100));
  bool under_way = false;
  for (bool ending = false; !ending;) {
    bool to_tell = false, to_do = false, failed = false;
    {
      const Lock lock(mutex_);
      to_tell = std::exchange(to_tell_, false);
      ending = ending_;
      failed = static_cast<bool>(failure_);
      to_do = to_tell || ending || (begin_ && !begun_ && !failure_);
    }
    try {
      if (!to_do) links_->wait(idle, under_way);
      if (to_tell) tell_all(Note(Note::failed, *failure_, calls_));
      while (const auto heard = links_->hear()) take(heard->from, heard->note);
      if (!failed) watch();
      beat();
      under_way = !drive();
    } catch (...) {
      fail(failure_of_rank(rank(), calls_, current_error()));
    }
  }
  try {
    // Sends a failure to all ranks even if another rank has sent it before. A rank whose connection to this rank ends
    // without such a note would think that this rank has died.
    tell_all(failure_ ? Note(Note::failed, *failure_, calls_) : Note(Note::left, calls_));
    links_->leave(std::min<milliseconds>(timeout_, std::chrono::seconds(1)));
  } catch (...) {
    // A connection has failed, or there is no memory, so the other ranks cannot be told.
  }
}

// Continues the operation that run() waits for, if there is one. Returns whether nothing is left to do.
bool ProcessThread::drive() {
  const Begin* begin = nullptr;
  {
    const Lock lock(mutex_);
    if (!begin_ || failure_) return true;
    driving_ = true;
    begin = begin_;
  }
  bool done = false;
  std::exception_ptr failed;
  try {
    done = go_on(*begin);
  } catch (...) {
    failed = std::current_exception();
  }
  {
    const Lock lock(mutex_);
    driving_ = false;
    if (done) begin_ = nullptr;
    if (done || failure_) done_.notify_all();
  }
  if (done) begun_ = false;
  if (failed) std::rethrow_exception(failed);
  return done;
}

// Begins the operation if it has not begun yet, and lets the links send and receive. Ends the group if a rank that this
// operation needs has left.
bool ProcessThread::go_on(const Begin& begin) {
  if (!std::exchange(begun_, true)) begin(*links_);
  for (int rank = 0; rank < size(); rank++) {
    const std::optional<uint64_t>& finished = left_[static_cast<size_t>(rank)];
    if (!finished || *finished > calls_) continue;
    fail(failure_of_rank(rank, calls_, has_left()));
    return false;
  }
  return links_->drive();
}

void ProcessThread::take(int from, const Note& note) {
  if (from == watched_) last_heard_ = Clock::now();
  std::optional<uint64_t>& left = left_[static_cast<size_t>(from)];
  if (note.kind == Note::left) {
    // All ranks take part in a call, so no rank can have finished more calls than this rank has begun.
    if (note.calls > calls_ + 1)
      return static_cast<void>(fail(failure_of_rank(
          from, calls_,
          Error(Category::bad_pipeline, fmt::format("the rank says that it has finished {} calls, which is impossible; "
                                                    "all ranks must run the same version of feedline",
                                                    note.calls)))));
    left = note.calls;
  }
  if (note.kind == Note::failed) end(note.error(), false);
  if (note.kind == Note::lost && !left) fail(failure_of_rank(from, calls_, note.error()));
}

void ProcessThread::watch() {
  const auto now = Clock::now();
  // If this process itself was suspended, notes could not be received in that time. So the timeout starts anew.
  const bool was_away = now - last_listened_ > std::max(timeout_ / 4, std::chrono::milliseconds(2));
  last_listened_ = now;
  const int before = neighbour(-1);
  if (was_away || std::exchange(watched_, before) != before) last_heard_ = now;
  // (The threads of both ranks send and receive notes at most once a millisecond. So a silence of less than 10 ms is
  // not a failure, even if the timeout is shorter.)
  if (before != rank() && now - last_heard_ > std::max(timeout_, std::chrono::milliseconds(10)))
    fail(failure_of_rank(
        before, calls_,
        Error(Category::io_error,
              fmt::format("silent for {} s: the rank has died, was stopped, or cannot be reached; see the log of that "
                          "rank",
                          std::chrono::duration<double>(timeout_).count()))));
}

void ProcessThread::beat() {
  const auto now = Clock::now();
  const int next = neighbour(1);
  if (now - last_beat_ < timeout_ / 10 || next == rank() || !links_->told()) return;
  links_->tell(next, Note(Note::alive, calls_));
  last_beat_ = now;
}

void ProcessThread::tell_all(const Note& note) {
  for (int other = 0; other < size(); other++)
    if (other != rank()) links_->tell(other, note);
}

// Returns the nearest rank that has not left, after this one (direction 1) or before it (-1) in the ring of ranks.
// Returns this rank if all others have left.
int ProcessThread::neighbour(int direction) const {
  int other = rank();
  do other = (other + direction + size()) % size();
  while (other != rank() && left_[static_cast<size_t>(other)]);
  return other;
}

}  // namespace feedline::ranks
