// io_uring as this library uses it: set-up, reads, cancellation, and a wake-up from other threads. This file has only
// the mechanism; uring_backend.cc decides what to read when.
//
// With the flag IORING_SETUP_SINGLE_ISSUER only one thread may submit, register and cancel. So only the thread that
// makes a ring may use what is declared here, except Wake::ring(), which any thread may call.
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/descriptor.h"
#include "io/read/read_progress.h"

namespace feedline::io {

/// An eventfd with which any thread can wake the thread that owns the ring. The ring reads the eventfd.
class Wake {
 public:
  /// Throws std::system_error if the system refuses.
  Wake();

  /// Wakes the ring's thread. Thread-safe.
  void ring() noexcept;
  int fd() const noexcept { return descriptor_.fd(); }

 private:
  Descriptor descriptor_;
};

class UringRing {
 public:
  /// Makes a ring with room for `entries` operations and as many cancellations in flight. Throws std::system_error,
  /// which says what was tried, if the kernel does not allow io_uring or lacks what is needed.
  explicit UringRing(unsigned entries);
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  /// Registers `memory`, so that the kernel need not look up the pages for each read into it. All pages become
  /// resident. May be called once. Returns 0 or an errno; after a failure, reads into `memory` still work, as into any
  /// memory. `piece_bytes` is the size of a registered piece: the kernel accepts at most 1 GiB in one piece
  /// (io_uring_registered_buffers(7)).
  int register_memory(std::span<std::byte> memory, size_t piece_bytes = size_t{1} << 30);

  /// Queue a read, or the cancellation of the operation with the token `target`, for the next enter(). `token` comes
  /// back with the result. Return false if there is no room; the caller must then call enter() and reap(), and try
  /// again.
  bool prepare_read(int fd, const ReadCall& call, uint64_t token) noexcept;
  bool prepare_cancel(uint64_t target, uint64_t token) noexcept;

  /// Gives the queued operations to the kernel, and waits for a result. Returns 0 or an errno. After a failure the
  /// kernel may have taken some of the queued operations, or none of them.
  int enter() noexcept;
  /// Lets the kernel deliver results that are ready, without submitting anything or waiting. This is for a ring whose
  /// enter() fails.
  void look() noexcept;

  /// Calls handle(token, result) for each result that has arrived, and returns how many there were. `result` is a
  /// number of bytes or a negative errno. `handle` may queue further operations.
  template <typename Handle>
  unsigned reap(Handle&& handle) {
    unsigned head, count = 0;
    io_uring_cqe* cqe;
    io_uring_for_each_cqe(&ring_, head, cqe) {
      handle(cqe->user_data, result_of(*cqe));
      count++;
    }
    io_uring_cq_advance(&ring_, count);
    return count;
  }

  /// Calls handle(token) for each queued operation that the kernel has not taken. After this, only look() and reap()
  /// may be called.
  template <typename Handle>
  void for_each_not_taken(Handle&& handle) {
    const io_uring_sq& sq = ring_.sq;
    for (unsigned i = io_uring_smp_load_acquire(sq.khead); i != sq.sqe_tail; i++)
      handle(sq.sqes[i & (sq.ring_entries - 1)].user_data);
  }

 private:
  static int result_of(const io_uring_cqe& cqe) noexcept;
  void check_features();

  io_uring ring_{};
  size_t piece_bytes_ = 0;           // the size of each registered piece except the last one
  std::span<std::byte> registered_;  // the registered memory; empty if there is none
};

}  // namespace feedline::io
