// Paths that still name the same file after the process has gone to another folder.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "feedline/error.h"

namespace feedline {

/// Returns `path` itself if it is absolute, and otherwise the path below the working directory. Throws Error io_error
/// if the path is not absolute and the working directory cannot be told, for example because it was removed.
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

}  // namespace feedline
