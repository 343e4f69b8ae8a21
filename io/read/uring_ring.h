// io_uring as this library uses it: set up, reads, a wake-up from other threads, cancellation. Mechanism only.
//
// SINGLE_ISSUER binds submission, registration and cancellation to one thread: everything here is for the thread
// that makes the ring, but for Wake::ring().
#pragma once

#include <liburing.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "io/read/read_progress.h"

namespace feedline::io {

/// An eventfd: any thread rings it, the ring reads it.
class Wake {
 public:
  /// Throws std::system_error.
  Wake();
  ~Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;

  void ring() noexcept;
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

class UringRing {
 public:
  /// Room for `entries` operations and as many cancellations in flight.
  /// Throws std::system_error, with what was tried, when the kernel has no io_uring for us.
  explicit UringRing(unsigned entries);
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  /// Once: reads into `memory` spare the kernel looking up its pages, which all become resident. 0 or an errno; then
  /// reads into it are as any other. piece_bytes: the kernel takes at most 1 GiB in one piece
  /// (io_uring_registered_buffers(7)).
  int register_memory(std::span<std::byte> memory, size_t piece_bytes = size_t{1} << 30);

  // Queued for the next enter(). `token` comes back with the result. False: no room; enter, reap, and try again.
  bool prepare_read(int fd, const ReadCall& call, uint64_t token) noexcept;
  bool prepare_cancel(uint64_t target, uint64_t token) noexcept;

  /// Hands over what is queued and waits for a result. 0 or an errno; then nothing or a part may be handed over.
  int enter() noexcept;
  /// Only lets results appear, for a ring whose enter() fails.
  void look() noexcept;

  /// handle(token, result) for each result that has arrived; it may prepare more. Returns how many.
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

  /// handle(token) for each operation that the kernel has not taken. After it, only look() and reap().
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
  size_t piece_bytes_ = 0;
  std::span<std::byte> registered_;
};

}  // namespace feedline::io
