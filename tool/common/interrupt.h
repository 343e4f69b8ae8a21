// Lets Ctrl-C and `kill` end a command cleanly; the second signal ends it at once.
#pragma once

#include <csignal>

namespace feedline::cli {

/// While an Interrupt exists, the first SIGINT or SIGTERM sets a flag that the command checks, and the next signal has
/// its usual effect. Only one may exist at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Returns whether the flag is set. May be called from any thread.
  static bool happened() noexcept;
  /// Throws Error stalled, "interrupted", if the flag is set.
  static void check();

 private:
  struct sigaction interrupt_, terminate_;  // the handlers before this one, which the destructor restores
};

}  // namespace feedline::cli
