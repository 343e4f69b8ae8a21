// The `feedline` tool.
#include <csignal>
#include <cstdio>
#include <exception>

#include "tool/commands/run_tool.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // so that writing beyond `ulimit -f` is an ordinary error
  try {
    return feedline::tool::run_tool(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "feedline: %s\n", error.what());
  }
  return feedline::tool::failed;
}
