// Checks the values of flags, and refuses wrong ones with messages that people understand.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/parse.h"
#include "feedline/error.h"

namespace feedline::tool {

/// Adds a flag or an argument. `flag` is its name, and what --help shows for its value: "--out DIR".
template <typename Value>
CLI::Option* add_option(CLI::App& command, const std::string& flag, Value& value, const std::string& help) {
  const size_t space = flag.find(' ');
  return command.add_option(flag.substr(0, space), value, help)->option_text(flag.substr(space + 1));
}

/// Adds a flag that takes one of the words in `choices`, and sets `chosen` to the value of the word.
template <typename T>
CLI::Option* add_choice(CLI::App& command, const std::string& flag, T& chosen,
                        std::vector<std::pair<std::string, T>> choices, const std::string& help) {
  const auto choose = [flag, &chosen, choices = std::move(choices)](const std::string& word) {
    std::string words;
    for (const auto& [name, value] : choices) {
      if (name == word) {
        chosen = value;
        return;
      }
      words += (words.empty() ? "" : ", ") + name;
    }
    throw CLI::ValidationError(flag, "'" + word + "' is not one of: " + words);
  };
  return command.add_option_function<std::string>(flag, choose, help);
}

/// Accepts the numbers for which `fits` returns true. `wanted` describes these numbers in the error message.
template <typename T, typename Fits>
CLI::Validator number_that(Fits fits, std::string wanted) {
  const auto refuse = [fits, wanted = std::move(wanted)](const std::string& text) -> std::string {
    const auto value = parse_number<T>(text);
    return value && fits(*value) ? "" : "'" + text + "' is not " + wanted;
  };
  return CLI::Validator(refuse, "");
}

/// Accepts the whole numbers from `least` to `most`.
inline CLI::Validator whole_number(uint64_t least, uint64_t most = INT64_MAX) {
  return number_that<uint64_t>([least, most](uint64_t value) { return value >= least && value <= most; },
                               most < INT64_MAX ? fmt::format("a whole number from {} to {}", least, most)
                                                : fmt::format("a whole number of at least {}", least));
}

/// Accepts milliseconds, at most one day.
inline CLI::Validator milliseconds() {
  return number_that<double>([](double value) { return value >= 0 && value <= 86400e3; },
                             "a number of milliseconds from 0 to 86400000");
}

/// Accepts numbers of at least 0. The flag takes the number as a fraction of a whole: 0.1 is 10 %. Fractions of more
/// than 1 are accepted, too.
inline CLI::Validator share() {
  return number_that<double>([](double value) { return value >= 0; }, "a number of at least 0, such as 0.1");
}

/// Adds a flag that takes a number that `check` accepts.
template <typename Number>
CLI::Option* add_number(CLI::App& command, const std::string& flag, Number& number, const CLI::Validator& check,
                        const std::string& help) {
  return add_option(command, flag, number, help)->check(check);
}

/// Adds a flag that takes a size as people write it, for example 16KiB, from `least` to `most` bytes.
template <typename Size>
CLI::Option* add_size(CLI::App& command, const std::string& flag, Size& size, const std::string& help,
                      uint64_t least = 1, uint64_t most = UINT64_MAX) {
  const auto take = [flag, &size, least, most](const std::string& text) {
    uint64_t bytes = 0;
    try {
      bytes = parse_byte_size(text);
    } catch (const Error& error) {
      throw CLI::ValidationError(flag, error.message());
    }
    if (bytes < least)
      throw CLI::ValidationError(flag,
                                 fmt::format("'{}' is less than the minimum size, {}", text, format_byte_size(least)));
    if (bytes > most)
      throw CLI::ValidationError(flag,
                                 fmt::format("'{}' is more than the maximum size, {}", text, format_byte_size(most)));
    size = bytes;
  };
  return command.add_option_function<std::string>(flag, take, help)->option_text("SIZE");
}

}  // namespace feedline::tool
