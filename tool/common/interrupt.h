// Lets Ctrl-C, `kill` and a closed terminal end a command cleanly. A second signal of the same kind ends the command at
// once.
#pragma once

#include <csignal>

namespace feedline::tool {

/// While an Interrupt exists, the first SIGINT, SIGTERM or SIGHUP sets a flag that the command checks, and the next
/// signal of the same kind has its usual effect. If the command has worked for seconds without looking at the flag, the
/// first signal has its usual effect, too. A SIGHUP that the process ignores, as under nohup, stays ignored. Only one
/// Interrupt may exist at a time.
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
  struct sigaction interrupt_, terminate_, hang_up_;  // the earlier handlers, which the destructor restores
};

}  // namespace feedline::tool
