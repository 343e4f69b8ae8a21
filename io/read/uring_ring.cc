#include "io/read/uring_ring.h"

#include <sys/eventfd.h>
#include <unistd.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <system_error>
#include <vector>

#include "base/syscall_hooks.h"

namespace feedline::io {
namespace {

using EventfdOp = HookedCall<"eventfd", EMFILE>;
using WakeOp = HookedCall<"eventfd write", EINTR>;
/// Fails as in a container that forbids io_uring.
using RingSetupOp = HookedCall<"io_uring_setup", EPERM>;
/// Fails as on a kernel before 6.1, which does not know the newer flags.
using RingFlagsOp = HookedCall<"io_uring_setup flags", EINVAL>;
using RingDontforkOp = HookedCall<"madvise of the ring", ENOMEM>;
using RingProbeOp = HookedCall<"io_uring probe", EINVAL>;
using RegisterBuffersOp = HookedCall<"io_uring_register buffers", ENOMEM>;
using RingEnterOp = HookedCall<"io_uring_enter", EAGAIN>;          // a temporary failure
using RingLostOp = HookedCall<"io_uring_enter forbidden", EPERM>;  // a lasting failure
using CqeOp = HookedCall<"completion", EIO>;

[[noreturn]] void refuse(int error, const char* what) { throw std::system_error(error, std::generic_category(), what); }

int set_up(unsigned entries, io_uring& ring) noexcept {
  if (int error = injected<RingSetupOp>()) return error;
  // SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1): one thread submits, and completions are handled when it asks for them,
  // so they do not interrupt its other work. SUBMIT_ALL: an operation that is refused does not delay those after it.
  constexpr unsigned best = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL;
  int error = injected<RingFlagsOp>();
  if (!error) error = -io_uring_queue_init(entries, &ring, best);
  if (error == EINVAL) error = -io_uring_queue_init(entries, &ring, 0);
  return error;
}

// liburing maps and unmaps rings by system calls of its own, which ThreadSanitizer does not see. Without these notes,
// it would mistake a ring for an earlier one that had the same address.
#ifdef __SANITIZE_THREAD__
char rings_of_process;
void note_mapped() noexcept { __tsan_acquire(&rings_of_process); }
void note_unmapping() noexcept { __tsan_release(&rings_of_process); }
#else
void note_mapped() noexcept {}
void note_unmapping() noexcept {}
#endif

}  // namespace

Wake::Wake() {
  const int error = injected<EventfdOp>();
  descriptor_ = Descriptor(error ? -1 : eventfd(0, EFD_CLOEXEC));
  if (!descriptor_) refuse(error ? error : errno, "eventfd");
}

void Wake::ring() noexcept {
  const uint64_t one = 1;
  // The write fails only if a signal interrupts it. It would block only if the counter were full, after almost 2^64
  // wake-ups that nobody has read.
  while (injected<WakeOp>() || (write(fd(), &one, sizeof one) < 0 && errno == EINTR)) continue;
}

UringRing::UringRing(unsigned entries) {
  if (int error = set_up(entries, ring_)) refuse(error, "io_uring_setup");
  note_mapped();
  try {
    check_features();
  } catch (...) {
    io_uring_queue_exit(&ring_);
    throw;
  }
}

UringRing::~UringRing() {
  // The kernel destroys a ring some time after it is closed. Buffers are unregistered right now, so that their locked
  // memory no longer counts against RLIMIT_MEMLOCK. The next ring may need it.
  if (!registered_.empty()) io_uring_unregister_buffers(&ring_);
  note_unmapping();
  io_uring_queue_exit(&ring_);
}

void UringRing::check_features() {
  // A child made by fork() must not write into this ring.
  int error = injected<RingDontforkOp>();
  if (!error) error = -io_uring_ring_dontfork(&ring_);
  if (error) refuse(error, "io_uring_ring_dontfork");

  if (!(ring_.features & IORING_FEAT_NODROP))
    refuse(ENOSYS, "io_uring of this kernel can drop completions (Linux 5.5 or newer is needed)");
  const std::unique_ptr<io_uring_probe, void (*)(io_uring_probe*)> probe(
      injected<RingProbeOp>() ? nullptr : io_uring_get_probe_ring(&ring_), io_uring_free_probe);
  if (!probe) refuse(ENOSYS, "io_uring of this kernel has no probe (Linux 5.6 or newer is needed)");
  for (int operation : {IORING_OP_READ, IORING_OP_READ_FIXED, IORING_OP_ASYNC_CANCEL})
    if (!io_uring_opcode_supported(probe.get(), operation))
      refuse(ENOSYS, "io_uring of this kernel has no reads (Linux 5.6 or newer is needed)");
}

int UringRing::register_memory(std::span<std::byte> memory, size_t piece_bytes) {
  // Linux before 5.13 does not have these tags. There, registration would wait for all operations in flight. One of
  // them is the read of the eventfd, which ends only at the next Wake::ring().
  if (!(ring_.features & IORING_FEAT_RSRC_TAGS)) return EOPNOTSUPP;
  std::vector<iovec> pieces;
  for (size_t at = 0; at < memory.size(); at += piece_bytes)
    pieces.push_back({memory.data() + at, std::min(piece_bytes, memory.size() - at)});
  int error = injected<RegisterBuffersOp>();
  if (!error) error = -io_uring_register_buffers(&ring_, pieces.data(), static_cast<unsigned>(pieces.size()));
  if (error) return error;
  piece_bytes_ = piece_bytes;
  registered_ = memory;
  return 0;
}

bool UringRing::prepare_read(int fd, const ReadCall& call, uint64_t token) noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (!sqe) return false;
  const std::less_equal<const std::byte*> up_to;  // may compare pointers into different memory, unlike <=
  const bool fixed = !registered_.empty() && up_to(registered_.data(), call.buffer) &&
                     up_to(call.buffer + call.length, registered_.data() + registered_.size());
  const size_t at = fixed ? static_cast<size_t>(call.buffer - registered_.data()) : 0;
  if (fixed && at / piece_bytes_ == (at + call.length - 1) / piece_bytes_)
    io_uring_prep_read_fixed(sqe, fd, call.buffer, call.length, call.offset, static_cast<int>(at / piece_bytes_));
  else
    io_uring_prep_read(sqe, fd, call.buffer, call.length, call.offset);
  io_uring_sqe_set_data64(sqe, token);
  return true;
}

bool UringRing::prepare_cancel(uint64_t target, uint64_t token) noexcept {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  if (!sqe) return false;
  io_uring_prep_cancel64(sqe, target, 0);
  io_uring_sqe_set_data64(sqe, token);
  return true;
}

int UringRing::enter() noexcept {
  if (int error = injected<RingEnterOp>()) return error;
  if (int error = injected<RingLostOp>()) return error;
  const int submitted = io_uring_submit_and_wait(&ring_, 1);
  return submitted < 0 ? -submitted : 0;
}

void UringRing::look() noexcept {
  io_uring_enter(static_cast<unsigned>(ring_.ring_fd), 0, 0, IORING_ENTER_GETEVENTS, nullptr);
}

int UringRing::result_of(const io_uring_cqe& cqe) noexcept {
  if (int error = injected<CqeOp>()) return -error;
  return cqe.res;
}

}  // namespace feedline::io
