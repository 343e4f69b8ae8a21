// The `feedline` tool.
#include <cstdio>
#include <exception>

#include "tool/commands/run_tool.h"

int main(int argc, char** argv) {
  try {
    return feedline::cli::run_tool(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "feedline: %s\n", error.what());
  }
  return feedline::cli::failed;
}
