#include "tool/common/interrupt.h"

#include <atomic>
#include <cstdint>
#include <ctime>

#include "feedline/error.h"

namespace feedline::tool {
namespace {

std::atomic<bool> signalled = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

// The moment at which the command last looked at the flag, in nanoseconds of two clocks: the monotonic one, and the
// process's CPU time.
std::atomic<int64_t> looked_ns = 0, looked_cpu_ns = 0;

int64_t now_ns(clockid_t clock) noexcept {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void look() noexcept {
  looked_ns = now_ns(CLOCK_MONOTONIC);
  looked_cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID);
}

// Returns whether the command has worked for seconds without looking at the flag, for example on a plan of many
// features. Both clocks must show this: time also passes while a process is stopped, and a process with many threads
// uses a second of CPU time in a moment.
bool nobody_looks() noexcept {
  constexpr int64_t long_ago = 2'000'000'000, much_cpu = 1'000'000'000;
  return now_ns(CLOCK_MONOTONIC) - looked_ns > long_ago && now_ns(CLOCK_PROCESS_CPUTIME_ID) - looked_cpu_ns > much_cpu;
}

void on_signal(int number) {
  if (nobody_looks()) std::raise(number);  // ends the process: SA_RESETHAND has restored the usual effect
  signalled = true;
}

}  // namespace

Interrupt::Interrupt() {
  signalled = false;
  look();
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
  sigaction(SIGHUP, nullptr, &hang_up_);
  if (hang_up_.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
  sigaction(SIGHUP, &hang_up_, nullptr);
}

bool Interrupt::happened() noexcept {
  look();
  return signalled;
}

void Interrupt::check() {
  if (happened()) throw Error(Category::stalled, "interrupted");
}

}  // namespace feedline::tool
