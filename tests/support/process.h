// Counts what this process holds, and runs code in a child process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/machine.h"
#include "base/syscall_hooks.h"

namespace feedline::test {

/// How long a rank of a test may be silent before the others give it up.
inline constexpr std::chrono::seconds silence(2);

inline size_t entries(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) count++;
  return count;
}
inline size_t open_descriptors() { return entries("/proc/self/fd"); }
inline size_t threads() { return entries("/proc/self/task"); }

/// What /proc says about a thread: its name, and the CPUs that it may run on, as in "0-3,8".
struct ThreadStatus {
  std::string name, cpus;
};
inline std::vector<ThreadStatus> thread_statuses() {
  std::vector<ThreadStatus> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    ThreadStatus thread;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      const size_t value = line.find('\t') + 1;
      if (line.rfind("Name:", 0) == 0) thread.name = line.substr(value);
      if (line.rfind("Cpus_allowed_list:", 0) == 0) thread.cpus = line.substr(value);
    }
    if (!thread.cpus.empty()) threads.push_back(std::move(thread));  // an empty string: the thread has just ended
  }
  return threads;
}

inline int64_t private_memory() { return static_cast<int64_t>(own_memory()); }

/// Returns whether the process reaches `count` threads within 10 s: a thread that has been joined may still be
/// listed for a moment.
inline bool threads_settle_at(size_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads() != count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// Loses this process by `signal`: SIGKILL, or SIGSTOP. After SIGSTOP a child process wakes it 8 s later, when the
/// other ranks have timed out.
inline void lose_this_process(int signal) {
  const pid_t mine = getpid();
  if (signal == SIGSTOP && fork() == 0) {
    sleep(8);
    kill(mine, SIGCONT);
    _exit(0);
  }
  raise(signal);
}

/// Returns the hook of this name, or null if the program has none.
inline SyscallHook* find_hook(const std::string& name) {
  for (SyscallHook* hook : SyscallHook::all())
    if (hook->name() == name) return hook;
  return nullptr;
}

/// Runs `body` in a child process and returns its exit code: 101 if `body` throws, 102 if there can be no child, 128 +
/// the number of the signal if one ended the child. This process must have only one thread.
inline int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return 102;
  if (child == 0) {
    int code = 101;
    try {
      code = body();
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "in the child: %s\n", thrown.what());
    }
    std::fflush(nullptr);
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace feedline::test
