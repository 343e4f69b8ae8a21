// A thread of the library: named, and deaf to signals, which belong to the program.
#pragma once

#include <functional>
#include <thread>

namespace feedline {

/// All signals are blocked in it but those that a fault of its own raises (SIGSEGV, ...), so that crash reporters still
/// work. `name`: at most 15 characters. Throws std::system_error when the system has no thread left.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace feedline
