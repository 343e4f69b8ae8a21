#include "tool/common/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "feedline/error.h"
#include "io/output_file.h"

namespace feedline::tool {

std::string read_text(const std::string& path) {
  std::optional<std::string> text = find_text(path);
  if (!text) refused(path, "cannot be read", std::strerror(ENOENT));
  return std::move(*text);
}

std::optional<std::string> find_text(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return std::nullopt;
  std::string text;
  char part[65536];
  while (in.read(part, sizeof part) || in.gcount() > 0) text.append(part, static_cast<size_t>(in.gcount()));
  if (!in.eof()) refused(path, "cannot be read", std::strerror(errno));
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  io::OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.publish();
}

void make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) refused(folder, "the folder cannot be created", error.message());
}

void refused(const std::string& path, const char* what, const std::string& why) {
  throw Error(Category::io_error, fmt::format("{}: {}", what, why), Place::of_file(path));
}

}  // namespace feedline::tool
