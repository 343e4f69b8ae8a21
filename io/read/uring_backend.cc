// The backend that reads with io_uring: one ring, one thread that owns the ring, and a queue that any thread may fill.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/leak.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "io/read/backends.h"
#include "io/read/read_operation.h"
#include "io/read/uring_ring.h"

namespace feedline::io {
namespace {

class UringBackend final : public ReadBackend {
 public:
  UringBackend(std::shared_ptr<FileTable> files, const BackendOptions& options, ReadDone done)
      : files_(std::move(files)),
        done_(std::move(done)),
        register_after_reads_(options.register_after_reads),
        memory_(options.memory),
        // Each read under way holds a lease of the file table, which allows a backend depth() leases.
        requests_(std::clamp<size_t>(options.depth, 1, files_->depth())) {
    for (uint32_t i = 0; i < requests_.size(); i++) free_.push_back(i);
    ready_.reserve(requests_.size());
    const auto made = std::make_shared<std::promise<void>>();
    thread_ = start_thread("feedline-uring", [this, made] { own_ring(*made); });
    try {
      made->get_future().get();
    } catch (...) {
      thread_.join();
      throw;
    }
  }

  ~UringBackend() override { stop(); }

  void submit(std::span<const Read> reads) override {
    int refusal;
    {
      const Lock lock(mutex_);
      refusal = refusal_;
      if (!refusal) arrived_.insert(arrived_.end(), reads.begin(), reads.end());
    }
    if (refusal) {
      for (const Read& read : reads) done_(read.tag, refusal);
    } else if (asleep_.exchange(false)) {
      wake_.ring();
    }
  }

  std::optional<int> read_cached(const Read& read) noexcept override { return io::read_cached(*files_, read); }
  int opening() const noexcept override { return files_->opening; }

  void stop() override {
    {
      const Lock lock(mutex_);
      if (!refusal_) refusal_ = ECANCELED;
    }
    const Lock lock(join_mutex_);  // other threads that call stop() wait here until it is done
    if (!thread_.joinable()) return;
    wake_.ring();
    thread_.join();
  }

  std::string description() const override {
    const Lock lock(mutex_);
    std::string text = std::string("io_uring (") + io::describe(files_->direct());
    if (registration_ == 0) text += ", registered buffers";
    if (registration_.value_or(0) != 0)
      text += ", buffers not registered: " + std::generic_category().message(*registration_);
    return text + ")";
  }

 private:
  struct Request {  // a read that has begun, or room for one
    ReadOperation operation;
    bool in_ring = false, cancelled = false;
  };
  static constexpr uint64_t wake_token = 0, cancel_token = 1, first_read_token = 2;

  void own_ring(std::promise<void>& made) {
    std::optional<UringRing> ring;
    try {
      ring.emplace(static_cast<unsigned>(requests_.size() + 1));
    } catch (...) {
      made.set_exception(std::current_exception());
      return;
    }
    made.set_value();
    run(*ring);
  }

  // Reads until the backend is stopped or the ring is lost. Then waits until the kernel uses no memory of this backend,
  // and returns. (lose() says why a lost ring may still use the memory of wake_count_.)
  void run(UringRing& ring) {
    while (true) {
      const int refusal = take_arrived();
      if (refusal) {
        refuse_waiting(refusal);
        if (!lost_) cancel(ring);
        if (free_.size() == requests_.size() && cancels_ == 0 && (!wake_armed_ || lost_)) return;
      } else {
        if (!wake_armed_) wake_armed_ = ring.prepare_read(wake_.fd(), wake_call(), wake_token);
        if (begun_ >= register_after_reads_ && !waiting_.empty() && !memory_.empty()) register_memory(ring);
        begin_waiting();
        issue_ready(ring);
      }
      wait(ring);
    }
  }

  void register_memory(UringRing& ring) {
    const int error = ring.register_memory(std::exchange(memory_, {}));
    const Lock lock(mutex_);
    registration_ = error;
  }

  // Takes the reads that other threads have submitted. From here on, a submit wakes this thread. Returns the errno with
  // which reads are refused, or 0.
  int take_arrived() {
    const Lock lock(mutex_);
    waiting_.insert(waiting_.end(), arrived_.begin(), arrived_.end());
    arrived_.clear();
    asleep_ = true;
    return refusal_;
  }

  void begin_waiting() {
    while (!waiting_.empty() && !free_.empty()) {
      const Read read = waiting_.front();
      waiting_.pop_front();
      begun_++;
      const uint32_t index = free_.back();
      if (int error = requests_[index].operation.begin(*files_, read)) {
        done_(read.tag, error);
      } else {
        free_.pop_back();
        ready_.push_back(index);
      }
    }
  }

  // Gives the next calls of ready reads to the ring. Reads for which the ring has no room stay ready until the next
  // call of this function.
  void issue_ready(UringRing& ring) {
    auto next = ready_.begin();
    for (; next != ready_.end(); ++next) {
      Request& request = requests_[*next];
      if (!ring.prepare_read(request.operation.fd(), request.operation.call(), *next + first_read_token)) break;
      request.in_ring = true;
    }
    ready_.erase(ready_.begin(), next);
  }

  // Completes, with the errno `refusal`, all reads that were not given to the ring.
  void refuse_waiting(int refusal) {
    for (const Read& read : std::exchange(waiting_, {})) done_(read.tag, refusal);
    for (uint32_t index : std::exchange(ready_, {})) {
      requests_[index].operation.abandon();
      complete(index, refusal);
    }
  }

  void cancel(UringRing& ring) {
    for (uint32_t i = 0; i < requests_.size(); i++) {
      Request& request = requests_[i];
      if (!request.in_ring || request.cancelled) continue;
      if (!ring.prepare_cancel(i + first_read_token, cancel_token)) return;
      request.cancelled = true;
      cancels_++;
    }
  }

  void wait(UringRing& ring) {
    int error = 0;
    if (lost_)
      ring.look();
    else
      error = ring.enter();
    asleep_ = false;
    const unsigned results = ring.reap([this](uint64_t token, int result) { handle(token, result); });
    if (error == 0 && !lost_) return;
    const bool passes = error == 0 || error == EINTR || error == EAGAIN || error == EBUSY || error == ENOMEM;
    if (!passes)
      lose(ring, error);
    else if (results == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  void handle(uint64_t token, int result) {
    if (token == wake_token) {
      wake_armed_ = false;
    } else if (token == cancel_token) {
      cancels_--;
    } else {
      const uint32_t index = static_cast<uint32_t>(token - first_read_token);
      requests_[index].in_ring = false;
      if (std::optional<int> over = requests_[index].operation.advance(result))
        complete(index, *over);
      else
        ready_.push_back(index);
    }
  }

  // Handles a kernel that accepts nothing more from this thread, for instance because a seccomp filter was installed
  // after the ring was made. Fails all reads except those that the kernel has taken, whose memory is in use until their
  // results arrive.
  void lose(UringRing& ring, int error) {
    lost_ = true;
    log_error(fmt::format("io_uring_enter: {}; all further reads fail", std::generic_category().message(error)));
    {
      const Lock lock(mutex_);
      if (!refusal_) refusal_ = error;
    }
    if (wake_armed_) leak(wake_count_);  // the kernel may write to it even after this object is destroyed
    ring.for_each_not_taken([&](uint64_t token) { handle(token, -error); });
  }

  void complete(uint32_t index, int error) {
    Request& request = requests_[index];
    void* const tag = request.operation.tag();
    request = {};
    free_.push_back(index);
    done_(tag, error);
  }

  ReadCall wake_call() noexcept { return {reinterpret_cast<std::byte*>(wake_count_.get()), 0, sizeof *wake_count_}; }

  const std::shared_ptr<FileTable> files_;
  const ReadDone done_;
  const uint64_t register_after_reads_;
  Wake wake_;

  mutable Mutex mutex_;
  Mutex join_mutex_;
  // The result of registering memory, 0 or an errno. It has no value before registration was tried.
  std::optional<int> registration_ FEEDLINE_GUARDED_BY(mutex_);
  std::vector<Read> arrived_ FEEDLINE_GUARDED_BY(mutex_);  // submitted, but not yet seen by the ring's thread
  // The errno with which new reads are refused; ECANCELED after stop().
  int refusal_ FEEDLINE_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> asleep_{false};  // whether the ring's thread must be woken to look at arrived_

  // Only the ring's thread uses the following members.
  std::span<std::byte> memory_;  // the memory that is still to be registered
  uint64_t begun_ = 0;           // the number of reads taken from waiting_
  std::deque<Read> waiting_;     // reads that have no request yet
  std::vector<Request> requests_;
  // free_ has the numbers of the requests without a read. ready_ has those of the reads whose next call is to be made.
  std::vector<uint32_t> free_, ready_;
  // The memory into which the ring reads the eventfd.
  std::shared_ptr<uint64_t> wake_count_ = std::make_shared<uint64_t>(0);
  // wake_armed_: the ring is reading the eventfd. lost_: the kernel accepts nothing more for the ring.
  bool wake_armed_ = false, lost_ = false;
  uint32_t cancels_ = 0;  // cancellations in the ring

  std::thread thread_ FEEDLINE_GUARDED_BY(join_mutex_);
};

}  // namespace

std::unique_ptr<ReadBackend> make_uring_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done) {
  return std::make_unique<UringBackend>(std::move(files), options, std::move(done));
}

}  // namespace feedline::io
