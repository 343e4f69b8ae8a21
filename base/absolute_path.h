// Paths that name the same file when the process has gone to another folder.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "feedline/error.h"

namespace feedline {

/// Returns the path as an absolute one: itself if it is, otherwise the path below the working directory, which is not
/// asked for if the path is absolute, as it may have been removed. Throws Error io_error if it was.
inline std::filesystem::path absolute_path(const std::filesystem::path& path) {
  if (path.is_absolute()) return path;
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  if (error)
    throw Error(Category::io_error,
                fmt::format("'{}' is relative to the working directory, which cannot be told: {}; go to a folder that "
                            "exists, or write an absolute path",
                            path.string(), std::generic_category().message(error.value())));
  return path.empty() ? here : here / path;
}

}  // namespace feedline
