// Reads and writes small files of text as a whole, and creates folders.
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

/// Creates the folder, with the folders above it, if it does not exist. Throws Error io_error.
void make_folder(const std::string& folder);

}  // namespace feedline::tool
