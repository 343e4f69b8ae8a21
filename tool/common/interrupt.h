// Ctrl-C and `kill` end a command cleanly, the second one at once.
#pragma once

#include <csignal>

namespace feedline::cli {

/// While it lives, the first SIGINT or SIGTERM sets a flag that the command looks at; the next one does what it always
/// does. At most one at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// From any thread.
  static bool happened() noexcept;
  /// Throws Error stalled, "interrupted", when it happened.
  static void check();

 private:
  struct sigaction interrupt_, terminate_;  // what was there before
};

}  // namespace feedline::cli
