// The backend that reads with pread. It is the reference implementation, and is used if the kernel refuses io_uring.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/syscall_hooks.h"
#include "base/thread.h"
#include "io/read/backends.h"
#include "io/read/read_operation.h"
#include "io/syscall_ops.h"

namespace feedline::io {
namespace {

constexpr size_t thread_limit = 8;

int64_t pread_once(int fd, const ReadCall& call) noexcept {
  if (int error = injected<ReadOp>()) return -error;
  const ssize_t bytes = pread(fd, call.buffer, call.length, static_cast<off_t>(call.offset));
  return bytes < 0 ? -errno : bytes;
}

class PreadBackend final : public ReadBackend {
 public:
  PreadBackend(std::shared_ptr<FileTable> files, const BackendOptions& options, ReadDone done, std::string reason)
      : files_(std::move(files)), done_(std::move(done)), reason_(std::move(reason)) {
    const size_t wanted = std::clamp<size_t>(options.depth, 1, std::min(thread_limit, files_->depth()));
    try {
      while (threads_.size() < wanted) threads_.push_back(start_thread("feedline-pread", [this] { work(); }));
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;  // fewer threads than wanted are enough
    }
  }

  ~PreadBackend() override { stop(); }

  void submit(std::span<const Read> reads) override {
    bool refused;
    {
      const Lock lock(mutex_);
      refused = stopping_;
      if (!refused) waiting_.insert(waiting_.end(), reads.begin(), reads.end());
    }
    if (refused)
      for (const Read& read : reads) done_(read.tag, ECANCELED);
    else if (reads.size() == 1)
      arrived_.notify_one();
    else
      arrived_.notify_all();
  }

  std::optional<int> read_cached(const Read& read) noexcept override { return io::read_cached(*files_, read); }
  int opening() const noexcept override { return files_->opening; }

  void stop() override {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    arrived_.notify_all();
    const Lock lock(join_mutex_);  // other threads that call stop() wait here until it is done
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }

  std::string description() const override {
    return std::string("pread (") + describe(files_->direct()) + (reason_.empty() ? "" : "; " + reason_) + ")";
  }

 private:
  void work() {
    Lock lock(mutex_);
    while (true) {
      arrived_.wait(lock, [this]() FEEDLINE_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const Read read = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      done_(read.tag, perform(read));
      lock.lock();
    }
  }

  int perform(const Read& read) noexcept {
    if (stopping_) return ECANCELED;
    ReadOperation operation;
    if (int error = operation.begin(*files_, read)) return error;
    while (true) {
      if (std::optional<int> over = operation.advance(pread_once(operation.fd(), operation.call()))) return *over;
      if (!stopping_) continue;
      operation.abandon();
      return ECANCELED;
    }
  }

  const std::shared_ptr<FileTable> files_;
  const ReadDone done_;
  const std::string reason_;
  Mutex mutex_, join_mutex_;
  Condition arrived_;
  std::deque<Read> waiting_ FEEDLINE_GUARDED_BY(mutex_);
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_ FEEDLINE_GUARDED_BY(join_mutex_);
};

}  // namespace

std::unique_ptr<ReadBackend> make_pread_backend(std::shared_ptr<FileTable> files, const BackendOptions& options,
                                                ReadDone done, std::string reason) {
  return std::make_unique<PreadBackend>(std::move(files), options, std::move(done), std::move(reason));
}

}  // namespace feedline::io
