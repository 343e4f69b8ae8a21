// Lets tests make any system call (or allocation, or thread start) fail at its call site.
//
// A call site names its operation by a type, and asks the hook before it makes the call:
//
//   using OpenOp = HookedCall<"open", EMFILE>;
//   if (int error = injected<OpenOp>()) return -error;
//
// While no hook is armed, this costs one relaxed load from a cache line that all threads share and nobody writes. Hooks
// register themselves before main(), so that a test can enumerate the operations of all call sites:
// `for (SyscallHook* h : SyscallHook::all())`.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace feedline {

/// The name of an operation, as an argument of a template.
template <size_t size>
struct OperationName {
  constexpr OperationName(const char (&literal)[size]) { std::ranges::copy(literal, text); }  // NOLINT: a conversion
  char text[size];
};

/// The operation of a call site: its name, and the errno with which tests make it fail.
template <OperationName operation, int failure>
struct HookedCall {
  static constexpr const char* name = operation.text;
  static constexpr int error = failure;
};

/// The hook of one kind of operation, such as "open". Each operation Op has one object of this class, syscall_hook<Op>.
class SyscallHook {
 public:
  /// Registers the hook. `name` must outlive it. `error` is the errno with which the operation fails.
  SyscallHook(const char* name, int error);

  /// Returns every hook of the program, ordered by name.
  static std::vector<SyscallHook*> all();

  const char* name() const noexcept { return name_; }

  /// Returns the errno with which this call must fail, or 0 if the real call is to be made. Thread-safe.
  int next() noexcept { return armed_.load(std::memory_order_relaxed) == 0 ? 0 : count_down(); }

  /// Makes the n-th call from now on fail, once (n >= 1). 0 disarms the hook. Thread-safe.
  void fail_nth_call(int64_t n) noexcept { armed_ = n; }
  /// Returns whether the hook is armed and has not made a call fail yet.
  bool pending() const noexcept { return armed_.load() > 0; }

 private:
  int count_down() noexcept;

  const char* name_;
  int error_;
  std::atomic<int64_t> armed_{0};  // the call with this number, from 1, fails; 0: no call fails
};

template <typename Op>
inline SyscallHook syscall_hook{Op::name, Op::error};

/// Returns the errno with which this call of the operation `Op` must fail, or 0 if the real call is to be made.
template <typename Op>
inline int injected() noexcept {
  return syscall_hook<Op>.next();
}

}  // namespace feedline
