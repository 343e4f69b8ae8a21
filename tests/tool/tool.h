// Runs the built `feedline` tool as a user does.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace feedline::test {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct ToolResult {
  int code = -1;  // the exit code, or 128 + the number of the signal that ended it
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// A run of the tool, in the background until wait(). The destructor kills it if it still runs.
class Tool {
 public:
  explicit Tool(const std::vector<std::string>& arguments) {
    std::vector<char*> argv = {const_cast<char*>(FEEDLINE_TOOL)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const std::string out = folder_.file("out"), err = folder_.file("err");
    child_ = fork();
    if (child_ < 0) throw std::runtime_error("fork failed");
    if (child_ > 0) return;
    const int null = open("/dev/null", O_RDONLY);
    const int to_out = open(out.c_str(), O_WRONLY | O_CREAT, 0600),
              to_err = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (dup2(null, 0) == 0 && dup2(to_out, 1) == 1 && dup2(to_err, 2) == 2) execv(FEEDLINE_TOOL, argv.data());
    _exit(127);
  }
  ~Tool() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  pid_t pid() const { return child_; }
  void signal(int number) const {
#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer runs the handler late, or never, if the system chooses a thread that sleeps in a system call of its
    // own, as oneTBB's workers do. So the main thread is chosen here.
    syscall(SYS_tgkill, child_, child_, number);
#else
    kill(child_, number);
#endif
  }
  std::string standard_error() const { return read_file(folder_.file("err")); }
  ToolResult wait() {
    int status = 0;
    if (waitpid(child_, &status, 0) != child_) throw std::runtime_error("waitpid failed");
    child_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(folder_.file("out")),
            standard_error()};
  }

 private:
  TempDir folder_;
  pid_t child_ = -1;
};

inline ToolResult run_tool(const std::vector<std::string>& arguments) { return Tool(arguments).wait(); }

}  // namespace feedline::test
