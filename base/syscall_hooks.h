// Lets tests act out the failure of any system call (or allocation, or thread start) at its call site.
//
// A call site names its operation by a tag type and asks the hook first:
//
//   struct OpenOp { static constexpr const char* name = "open"; static constexpr int error = EMFILE; };
//   if (int error = injected<OpenOp>()) return -error;
//
// While nothing is armed this costs one relaxed load of a shared, read-only cache line. Hooks register themselves
// before main, so that a test can enumerate every call site's operation: `for (SyscallHook* h : SyscallHook::all())`.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace feedline {

class SyscallHook {
 public:
  SyscallHook(const char* name, int error);

  /// Every hook of the program, ordered by name.
  static std::vector<SyscallHook*> all();

  const char* name() const noexcept { return name_; }

  /// The errno to act out now, or 0 for the real call.
  int next() noexcept { return armed_.load(std::memory_order_relaxed) == 0 ? 0 : count_down(); }

  /// The n-th call from now on fails once (n >= 1); 0 disarms. Thread-safe.
  void fail_nth_call(int64_t n) noexcept { armed_ = n; }
  /// Whether the failure asked for has not happened yet.
  bool pending() const noexcept { return armed_.load() > 0; }

 private:
  int count_down() noexcept;

  const char* name_;
  int error_;
  std::atomic<int64_t> armed_{0};
};

template <typename Op>
inline SyscallHook syscall_hook{Op::name, Op::error};

template <typename Op>
inline int injected() noexcept {
  return syscall_hook<Op>.next();
}

}  // namespace feedline
