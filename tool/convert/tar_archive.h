// Reads the files in a tar archive, plain or compressed by gzip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace feedline::cli {

/// Calls on_file with the path in the archive and the content of each regular file for whose path `wanted` returns
/// true. Calls progress with the number of bytes of the archive that were read since its last call; it may throw to
/// stop.
///
/// Throws Error io_error if the archive cannot be opened or read. Throws Error bad_pipeline if it is damaged, if a
/// wanted file has more than `most_bytes` bytes, or if feedline was built without libarchive.
void read_archive(const std::string& archive, uint64_t most_bytes,
                  const std::function<bool(const std::string& path)>& wanted,
                  const std::function<void(const std::string& path, std::string content)>& on_file,
                  const std::function<void(uint64_t bytes)>& progress);

}  // namespace feedline::cli
