#include "tool/feeding/state_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "io/output_file.h"

namespace feedline::tool {

namespace {

// Returns nullopt if there is no file.
std::optional<std::string> text_of(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return std::nullopt;
  std::string text(1 << 24, '\0');  // longer than any state, even one with the weights of many sources
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (!in.eof() && !in.good())
    throw Error(Category::io_error, fmt::format("cannot be read: {}", std::strerror(errno)), Place::of_file(path));
  return text;
}

}  // namespace

StateFile::StateFile(std::string path) : path_(std::move(path)), lock_(path_) {}

bool StateFile::restore(Feeder& feeder, bool accept_changes) {
  io::remove_unfinished(path_);
  std::optional<std::string> text = text_of(path_);
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
  io::OutputFile file(path_);
  file.write(std::as_bytes(std::span(state)));
  file.publish();
  saved_ = state;
}

std::string state_in_words(const std::string& state) {
  const auto json = nlohmann::json::parse(state);
  return fmt::format("step {} of epoch {}", json.at("step").get<uint64_t>(), json.at("epoch").get<uint64_t>());
}

std::string state_at(const std::string& path) {
  const std::optional<std::string> text = path.empty() ? std::nullopt : text_of(path);
  if (!text) return "no state";
  try {
    return "the state of " + state_in_words(*text);
  } catch (const nlohmann::json::exception&) {
    return "a state that cannot be read";  // Feeder::set_state() says why
  }
}

}  // namespace feedline::tool
