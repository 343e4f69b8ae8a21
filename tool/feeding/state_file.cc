#include "tool/feeding/state_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "io/output_file.h"
#include "tool/common/text_file.h"

namespace feedline::tool {

StateFile::StateFile(std::string path) : path_(std::move(path)), lock_(path_) {}

bool StateFile::restore(Feeder& feeder, bool accept_changes) {
  io::remove_unfinished(path_);
  std::optional<std::string> text = find_text(path_);
  if (!text) return false;
  try {
    feeder.set_state(*text, accept_changes);
  } catch (const Error& error) {
    throw error.at(Place::of_file(path_));
  }
  saved_ = std::move(*text);
  return true;
}

void StateFile::save(const std::string& state) {
  if (state == saved_) return;
  write_text(path_, state);
  saved_ = state;
}

std::string state_in_words(const std::string& state) {
  const auto json = nlohmann::json::parse(state);
  return fmt::format("step {} of epoch {}", json.at("step").get<uint64_t>(), json.at("epoch").get<uint64_t>());
}

std::string state_at(const std::string& path) {
  const std::optional<std::string> text = path.empty() ? std::nullopt : find_text(path);
  if (!text) return "no state";
  try {
    return "the state of " + state_in_words(*text);
  } catch (const nlohmann::json::exception&) {
    return "a state that cannot be read";  // Feeder::set_state() will throw the reason
  }
}

}  // namespace feedline::tool
