#include "tool/common/interrupt.h"

#include <atomic>

#include "feedline/error.h"

namespace feedline::cli {
namespace {

std::atomic<bool> signalled = false;
static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");

void on_signal(int) { signalled = true; }

}  // namespace

Interrupt::Interrupt() {
  signalled = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
}

bool Interrupt::happened() noexcept { return signalled; }

void Interrupt::check() {
  if (signalled) throw Error(Category::stalled, "interrupted");
}

}  // namespace feedline::cli
