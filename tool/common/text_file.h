// Small files of text, read and written as a whole; folders; and the error if the system refuses either of them.
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
/// Throws Error io_error with `path` as its place and the text "WHAT: WHY", such as "cannot be opened: Permission
/// denied".
[[noreturn]] void refused(const std::string& path, const char* what, const std::string& why);

}  // namespace feedline::tool
