// The subcommands of `feedline`, one file each.
//
// add_X() adds its subcommand to `app`. When people choose it, `run` becomes what it does; that returns the exit code:
// 0 done, 1 the data or the run failed. It throws UsageError for wrong usage and Error for all that stops it; main()
// turns them into one line on standard error and exit codes 2 and 1; with --json also into {"error": ...} on standard
// output, so a command prints its JSON when all is done, as the last thing.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "tool/common/usage_error.h"

namespace feedline::cli {

using Run = std::function<int()>;

void add_demo(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_dump(CLI::App& app, Run& run);
void add_check(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_verify(CLI::App& app, Run& run);
void add_index(CLI::App& app, Run& run);
void add_cat(CLI::App& app, Run& run);
void add_split(CLI::App& app, Run& run);
void add_convert(CLI::App& app, Run& run);

}  // namespace feedline::cli
