// The subcommands of `feedline`, one file each.
//
// add_X() adds its subcommand to `app`. When the user chooses the subcommand, `run` is set to the function that carries
// it out. That function returns the exit code: 0 done, 1 the data or the run failed. It throws UsageError for wrong
// usage, and Error for everything else that stops it. run_tool() turns these exceptions into one line on standard error
// and exit code 2 or 1; with --json it also prints {"error": ...} on standard output. So a command must print its own
// JSON last, when everything is done.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tool/common/usage_error.h"

namespace feedline::tool {

using Run = std::function<int()>;
using AddCommand = void(CLI::App& app, Run& run);

AddCommand add_run, add_top, add_tune, add_dump, add_check, add_show, add_stats, add_inspect, add_verify, add_index,
    add_cat, add_split, add_convert;

/// Adds the subcommand `name`, which calls body(). Returns the subcommand, and the arguments of body(), in which flags
/// store their values. The arguments live as long as the subcommand.
template <typename Args>
std::pair<CLI::App&, Args&> add_command(CLI::App& app, Run& run, const std::string& name, const std::string& help,
                                        int (*body)(const Args& args)) {
  const auto args = std::make_shared<Args>();
  CLI::App* const command = app.add_subcommand(name, help);
  command->callback([args, body, &run] { run = [args, body] { return body(*args); }; });
  return {*command, *args};
}

}  // namespace feedline::tool
