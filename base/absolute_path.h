// Paths that name the same file when the process has gone to another folder.
#pragma once

#include <filesystem>
#include <string>

namespace feedline {

/// Returns the path as an absolute one: itself if it is, otherwise the path below the working directory, which must not
/// be asked for if the path is absolute, as it may have been removed. Throws Error io_error if it was.
std::filesystem::path absolute_path(const std::filesystem::path& path);

}  // namespace feedline
