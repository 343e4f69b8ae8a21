// The `feedline` tool.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

#include "feedline/error.h"
#include "trainer_bridge/cli/commands.h"

namespace feedline::cli {
namespace {

enum ExitCode { done = 0, failed = 1, wrong_usage = 2 };

int report(int code, const std::string& message) {
  fmt::print(stderr, "feedline: {}\n", message);
  return code;
}

/// Which subcommand's help to point at.
std::string help_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? "feedline --help" : fmt::format("feedline {} --help", chosen.front()->get_name());
}

int run(int argc, char** argv) {
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
  add_dump(app, command);
  add_check(app, command);
  add_inspect(app, command);
  add_verify(app, command);
  add_index(app, command);
  add_cat(app, command);
  add_split(app, command);
  add_convert(app, command);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return report(wrong_usage, fmt::format("{} (see {})", error.what(), help_of(app)));
  }
  try {
    const int code = command();
    // A full disk or a closed pipe behind standard output shows here at the latest.
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      return report(failed, fmt::format("standard output: {}", std::strerror(errno)));
    }
    return code;
  } catch (const UsageError& error) {
    return report(wrong_usage, fmt::format("{} (see {})", error.what(), help_of(app)));
  } catch (const Error& error) {
    return report(failed, error.what());
  }
}

}  // namespace
}  // namespace feedline::cli

int main(int argc, char** argv) {
  try {
    return feedline::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("feedline: out of memory\n", stderr);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "feedline: %s\n", error.what());
  }
  return feedline::cli::failed;
}
