// Makes paths absolute, so that they still name the same file after the process has changed its working directory.
// Quotes paths for shell commands.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "feedline/error.h"

namespace feedline {

/// Returns `path` itself if it is absolute, and otherwise the path below the working directory. Throws Error io_error
/// if the path is not absolute and the working directory cannot be determined, for example because it was removed.
inline std::filesystem::path absolute_path(const std::filesystem::path& path) {
  if (path.is_absolute()) return path;
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error)
    throw Error(Category::io_error,
                fmt::format("'{}' is relative to the working directory, which cannot be determined: {}; change to a "
                            "folder that exists, or write an absolute path",
                            path.string(), std::generic_category().message(error.value())));
  return path.empty() ? here : here / path;
}

/// Returns `text` as one word of a shell command. The word is in single quotes if `text` has characters that a shell
/// may interpret.
inline std::string shell_word(const std::string& text) {
  constexpr const char* plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+,:=@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text)
    if (c == '\'')
      word += "'\\''";
    else
      word += c;
  return word + "'";
}

}  // namespace feedline
