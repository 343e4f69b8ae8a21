// The subcommands of `feedline`, one file each.
//
// add_X() adds its subcommand to `app`. When the user chooses the subcommand, `run` is set to the function that carries
// it out. That function returns the exit code: 0 done, 1 the data or the run failed. It throws UsageError for wrong
// usage, and Error for everything else that stops it. run_tool() turns them into one line on standard error and exit
// code 2 or 1; with --json it also prints {"error": ...} on standard output. So a command must print its own JSON last,
// when everything is done.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "tool/common/usage_error.h"

namespace feedline::tool {

using Run = std::function<int()>;

void add_demo(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_top(CLI::App& app, Run& run);
void add_tune(CLI::App& app, Run& run);
void add_dump(CLI::App& app, Run& run);
void add_check(CLI::App& app, Run& run);
void add_show(CLI::App& app, Run& run);
void add_stats(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_verify(CLI::App& app, Run& run);
void add_index(CLI::App& app, Run& run);
void add_cat(CLI::App& app, Run& run);
void add_split(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);

}  // namespace feedline::tool
