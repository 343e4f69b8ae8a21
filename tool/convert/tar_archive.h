// Reads the files in a tar archive, plain or compressed by gzip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "io/file.h"

namespace feedline::tool {

/// The functions that read_archive() calls for the members of an archive, in the order of the members. Folders are
/// passed over. Each function may throw to end the reading.
struct ArchiveCalls {
  /// Returns whether on_file is to be called for the regular file with this path.
  std::function<bool(const std::string& path)> wanted;
  std::function<void(const std::string& path, std::string content)> on_file;
  /// Called for a hard link: `path` is a further name of the file `target`, which normally comes before it.
  std::function<void(const std::string& path, const std::string& target)> on_hard_link;
  /// Called for any other member. `what` is "a symbolic link to X", for example.
  std::function<void(const std::string& path, const std::string& what)> on_other;
  /// Called while the archive is read. `bytes` is the number of bytes that were read since the last call.
  std::function<void(uint64_t bytes)> progress;
};

/// Reads an archive, or several that follow one another in one file. Returns whether the end is marked by blocks of
/// zeros, as tar writes them. Without this mark, the file may have been cut between two members.
///
/// Throws Error io_error if the file cannot be read, or changes meanwhile. Throws Error bad_pipeline if it is damaged,
/// if a wanted file has more than `most_bytes` bytes, or if feedline was built without libarchive.
bool read_archive(const io::InputFile& file, uint64_t most_bytes, const ArchiveCalls& calls);

}  // namespace feedline::tool
