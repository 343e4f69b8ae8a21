// Small files of text, read and written as a whole.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace feedline::tool {

/// Returns what the file or pipe holds. Throws Error io_error, with the file as its place.
std::string read_text(const std::string& path);
/// Does the same, but returns nullopt if there is no file of this name.
std::optional<std::string> find_text(const std::string& path);
/// Writes the file completely, or leaves what was there. Throws Error io_error, with the file as its place.
void write_text(const std::string& path, std::string_view text);

}  // namespace feedline::tool
