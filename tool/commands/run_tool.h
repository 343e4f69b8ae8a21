// The `feedline` tool as a function.
#pragma once

namespace feedline::tool {

enum ExitCode { done = 0, failed = 1, wrong_usage = 2 };

/// Does what `feedline` does with these arguments, the first of which is the program's name, and returns its exit code.
int run_tool(int argc, char** argv);

}  // namespace feedline::tool
