// Checks the values of flags, and refuses wrong ones with messages that people understand.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace feedline::cli {

/// Adds a flag that takes one of a few words.
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

/// Accepts only a number for which `fits` returns true. `wanted` describes such numbers in the error message.
template <typename T, typename Fits>
CLI::Validator number_that(Fits fits, std::string wanted) {
  const auto refuse = [fits, wanted = std::move(wanted)](const std::string& text) -> std::string {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool good = error == std::errc() && end == text.data() + text.size() && fits(value);
    return good ? "" : "'" + text + "' is not " + wanted;
  };
  return CLI::Validator(refuse, "");
}

inline CLI::Validator whole_number(uint64_t least, uint64_t most = INT64_MAX) {
  return number_that<uint64_t>(
      [least, most](uint64_t value) { return value >= least && value <= most; },
      "a whole number from " + std::to_string(least) + (most < INT64_MAX ? " to " + std::to_string(most) : " on"));
}

/// Accepts milliseconds, at most one day.
inline CLI::Validator milliseconds() {
  return number_that<double>([](double value) { return value >= 0 && value <= 86400e3; },
                             "a number from 0 to 86400000");
}

}  // namespace feedline::cli
