// The library's threads. They have names, and they block signals, because signals belong to the program.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "feedline/export.h"

namespace feedline {

/// Starts a thread that runs `body`. The thread blocks all signals except those that its own faults raise (SIGSEGV,
/// ...), so that crash reporters still work. `name` has at most 15 characters. It must live until the thread has
/// started, as a string literal does. Throws std::system_error if the system cannot start another thread.
FEEDLINE_PUBLIC std::thread start_thread(const char* name, std::function<void()> body);

/// Runs `body` in a thread made by start_thread() that stays on the CPUs `cpus`, and returns when `body` has returned.
/// Threads that `body` starts inherit these CPUs. The caller's own CPUs do not change. Throws what `body` throws, and
/// Error io_error if the system refuses the thread or the CPUs. A std::system_error of `body` becomes an Error
/// io_error, too.
void run_on_cpus(const char* name, const std::vector<int>& cpus, const std::function<void()>& body);

}  // namespace feedline
