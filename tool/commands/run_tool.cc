#include "tool/commands/run_tool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <string_view>
#include <system_error>

#include "feedline/error.h"
#include "tool/commands/commands.h"
#include "tool/common/interrupt.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"

namespace feedline::tool {
namespace {

/// Prints on standard error why the command ended; with --json, also on standard output. Returns `code`.
int report(int code, const std::string& message, bool as_json, const Json& error) {
  print_error("{}", message);
  if (as_json) print_document({{"error", error}});
  return code;
}

/// Returns the JSON of a failure that is no feedline::Error and therefore has no place.
Json without_place(const char* category, const std::string& message) {
  return {{"category", category}, {"file", nullptr},    {"offset", nullptr},
          {"record", nullptr},    {"feature", nullptr}, {"message", message}};
}

/// Returns whether --json is among the raw arguments. They are searched unparsed, because parsing them may fail.
bool wants_json(int argc, char** argv) {
  return std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
}

/// Returns the help command that an error message recommends.
std::string help_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "feedline --help" : fmt::format("feedline {} --help", chosen.front()->get_name());
}

}  // namespace

int run_tool(int argc, char** argv) {
  CLI::App app(
      "Reads TFRecord shards, checks every byte, and feeds finished tensors to training.\n"
      "Exit codes: 0 done, 1 the data or the run failed, 2 wrong usage.",
      "feedline");
  app.set_version_flag("--version", FEEDLINE_VERSION, "print the version and exit");
  app.set_help_flag("-h,--help", "print this help and exit");
  app.require_subcommand(1);

  Run command;
  add_demo(app, command);
  add_run(app, command);
  add_top(app, command);
  add_tune(app, command);
  add_dump(app, command);
  add_check(app, command);
  add_show(app, command);
  add_stats(app, command);
  add_inspect(app, command);
  add_verify(app, command);
  add_index(app, command);
  add_cat(app, command);
  add_split(app, command);
  add_convert(app, command);

  const bool json = wants_json(argc, argv);
  const auto wrong = [&](const std::exception& error) {
    const std::string message = fmt::format("{} (see {})", error.what(), help_of(app));
    return report(wrong_usage, message, json, without_place("wrong_usage", message));
  };
  // A full disk or a closed pipe at standard output is detected here at the latest.
  const auto written = [](int code) {
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    return report(failed, fmt::format("standard output cannot be written: {}", std::strerror(errno)), false, {});
  };
  try {
    app.parse(argc, argv);
    return written(command());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return wrong(error);
    const int code = app.exit(error);  // --help, --version
    std::cout.flush();
    return std::cout ? written(code) : report(failed, "standard output cannot be written", false, {});
  } catch (const UsageError& error) {
    return wrong(error);
  } catch (const Error& error) {
    const bool was_interrupted = error.category() == Category::stalled && Interrupt::happened();
    return report(failed, was_interrupted ? error.message() : error.what(), json, error_json(error));
  } catch (const std::bad_alloc&) {
    return report(failed, "out of memory", json, without_place("out_of_memory", "out of memory"));
  } catch (const std::system_error& error) {
    const std::string message = fmt::format(
        "{}{}", error.what(),
        error.code() == std::errc::resource_unavailable_try_again
            ? ": a thread could not be started; raise the limit of processes (ulimit -u, pids.max of the cgroup)"
            : "");
    return report(failed, message, json, without_place("io_error", message));
  } catch (const std::exception& error) {
    return report(failed, error.what(), json, without_place("io_error", error.what()));
  }
}

}  // namespace feedline::tool
