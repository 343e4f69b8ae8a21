// A thread of the library: named, and deaf to signals, which belong to the program.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace feedline {

/// All signals are blocked in it but those that a fault of its own raises (SIGSEGV, ...), so that crash reporters still
/// work. `name`: at most 15 characters. Throws std::system_error when the system has no thread left.
std::thread start_thread(const char* name, std::function<void()> body);

/// Runs `body` to its end in such a thread, kept on `cpus`; the threads that it starts inherit that, and the caller's
/// own CPUs stay as they are. Throws what `body` throws, and Error io_error where the system refuses.
void run_on_cpus(const char* name, const std::vector<int>& cpus, const std::function<void()>& body);

}  // namespace feedline
