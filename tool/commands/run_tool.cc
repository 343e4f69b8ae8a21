#include "tool/commands/run_tool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/did_you_mean.h"
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

/// Returns the JSON of a failure that is not a feedline::Error and therefore has no place.
Json without_place(const char* category, const std::string& message) {
  return {{"category", category}, {"file", nullptr},    {"offset", nullptr},
          {"record", nullptr},    {"feature", nullptr}, {"message", message}};
}

/// Returns whether --json is among the raw arguments. They are searched unparsed, because parsing them may fail.
bool wants_json(int argc, char** argv) {
  return std::find(argv, argv + argc, std::string_view("--json")) != argv + argc;
}

/// Returns the command that the arguments have chosen.
const CLI::App& chosen_of(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : chosen_of(*chosen.front());
}

/// Returns a command as it is called: "feedline convert csv".
std::string call_of(const CLI::App& command) {
  return (command.get_parent() ? call_of(*command.get_parent()) + " " : "") + command.get_name();
}

/// Finds the first argument that begins with "--" and is not an option of the command. Returns a hint at the option
/// that was meant; an empty text if there is no such argument or no hint.
std::string meant_option(const CLI::App& command, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string_view argument : std::span(argv, static_cast<size_t>(argc))) {
    const std::string name(argument.substr(0, argument.find('=')));
    if (name.starts_with("--") && std::ranges::find(names, name) == names.end()) return did_you_mean(name, names);
  }
  return "";
}

/// Returns what is wrong with the first argument if it is not a command; otherwise nullopt.
std::optional<std::string> wrong_command(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (argc < 2 || argv[1][0] == '-' || std::ranges::find(names, argv[1]) != names.end()) return {};
  return fmt::format("there is no command '{}'{}", argv[1], did_you_mean(argv[1], names));
}

}  // namespace

int run_tool(int argc, char** argv) {
  CLI::App app(
      "Reads TFRecord shards, checks every byte, and feeds finished tensors to training.\n"
      "Exit codes: 0 success, 1 bad data or a failed run, 2 wrong usage.",
      "feedline");
  app.set_version_flag("--version", FEEDLINE_VERSION, "print the version and exit");
  app.set_help_flag("-h,--help", "print this help and exit");
  app.require_subcommand(1);

  Run command;
  for (AddCommand* const add : {add_run, add_top, add_tune, add_dump, add_check, add_show, add_stats, add_inspect,
                                add_verify, add_index, add_cat, add_split, add_convert})
    add(app, command);

  const bool json = wants_json(argc, argv);
  const auto wrong = [&](const std::string& why) {
    const std::string message = fmt::format("{} (see {} --help)", why, call_of(chosen_of(app)));
    return report(wrong_usage, message, json, without_place("wrong_usage", message));
  };
  if (const auto why = wrong_command(app, argc, argv)) return wrong(*why);
  // A full disk or a closed pipe at standard output is detected here at the latest.
  const auto written = [](int code) {
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    return report(failed, fmt::format("standard output cannot be written: {}", std::strerror(errno)), false, {});
  };
  try {
    app.parse(argc, argv);
    return written(command());
  } catch (const CLI::ExtrasError& error) {
    return wrong(error.what() + meant_option(chosen_of(app), argc, argv));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return wrong(error.what());
    const int code = app.exit(error);  // --help, --version
    std::cout.flush();
    return std::cout ? written(code) : report(failed, "standard output cannot be written", false, {});
  } catch (const UsageError& error) {
    return wrong(error.what());
  } catch (const Error& error) {
    const bool was_interrupted = error.category() == Category::stalled && Interrupt::happened();
    return report(failed, was_interrupted ? error.message() : error.what(), json, error_json(error));
  } catch (const std::bad_alloc&) {
    return report(failed, "out of memory", json, without_place("out_of_memory", "out of memory"));
  } catch (const std::exception& error) {
    return report(failed, error.what(), json, without_place("io_error", error.what()));
  }
}

}  // namespace feedline::tool
