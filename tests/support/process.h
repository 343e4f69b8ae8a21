// What the process holds, and code run in a child of it.
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

#include "base/syscall_hooks.h"

namespace feedline::test {

inline size_t entries(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) count++;
  return count;
}
inline size_t open_descriptors() { return entries("/proc/self/fd"); }
inline size_t threads() { return entries("/proc/self/task"); }

/// What /proc says about each thread: its name, and the CPUs that it may run on as "0-3,8".
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
    if (!thread.cpus.empty()) threads.push_back(std::move(thread));  // else it has just ended
  }
  return threads;
}

/// RssAnon + RssShmem, in bytes.
inline int64_t private_memory() {
  std::ifstream status("/proc/self/status");
  int64_t sum = 0;
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssAnon:", 0) == 0 || line.rfind("RssShmem:", 0) == 0) sum += std::stoll(line.substr(9)) * 1024;
  return sum;
}

/// Whether there are `count` threads, in the end: one that has been joined may show for a moment longer.
inline bool threads_settle_at(size_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (threads() != count) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

/// SIGKILL; or SIGSTOP, with a process that wakes this one when its ranks' timeouts are over.
inline void lose_this_process(int signal) {
  const pid_t mine = getpid();
  if (signal == SIGSTOP && fork() == 0) {
    sleep(8);
    kill(mine, SIGCONT);
    _exit(0);
  }
  raise(signal);
}

/// A hook by its name; null when the program has none of that name.
inline SyscallHook* find_hook(const std::string& name) {
  for (SyscallHook* hook : SyscallHook::all())
    if (hook->name() == name) return hook;
  return nullptr;
}

/// The exit code of `body`, run in a child; 101 when it throws, 128 + the number of a signal that ended it.
/// The process must have one thread.
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
