#include "tool/common/text_file.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "feedline/error.h"
#include "io/file.h"
#include "io/output_file.h"

namespace feedline::tool {

std::string read_text(const std::string& path) {
  std::optional<std::string> text = find_text(path);
  if (!text) throw io::io_failure(path, "cannot be read", ENOENT);
  return std::move(*text);
}

std::optional<std::string> find_text(const std::string& path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in && errno == ENOENT) return std::nullopt;
  std::string text;
  char part[65536];
  while (in.read(part, sizeof part) || in.gcount() > 0) text.append(part, static_cast<size_t>(in.gcount()));
  if (!in.eof()) throw io::io_failure(path, "cannot be read", errno);
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
  if (error) throw io::io_failure(folder, "the folder cannot be created", error.value());
}

}  // namespace feedline::tool
