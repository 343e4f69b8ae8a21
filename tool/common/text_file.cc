#include "tool/common/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>
#include <utility>

#include "feedline/error.h"
#include "io/output_file.h"

namespace feedline::tool {

std::string read_text(const std::string& path) {
  std::optional<std::string> text = find_text(path);
  if (!text)
    throw Error(Category::io_error, fmt::format("cannot be read: {}", std::strerror(ENOENT)), Place::of_file(path));
  return std::move(*text);
}

std::optional<std::string> find_text(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return std::nullopt;
  std::string text;
  char part[65536];
  while (in.read(part, sizeof part) || in.gcount() > 0) text.append(part, static_cast<size_t>(in.gcount()));
  if (!in.eof())
    throw Error(Category::io_error, fmt::format("cannot be read: {}", std::strerror(errno)), Place::of_file(path));
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  io::OutputFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.publish();
}

}  // namespace feedline::tool
