// The files in a tar archive, plain or compressed by gzip.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace feedline::cli {

/// Calls on_file for each regular file whose name (without folders) is `wanted`, with its content. Throws Error:
/// io_error where the archive cannot be opened or read on; bad_pipeline where it is damaged, where a wanted file has
/// more than `most_bytes`, or where feedline was built without libarchive. progress: how many more bytes of the archive
/// were read; may throw to stop.
void read_archive(const std::string& archive, uint64_t most_bytes,
                  const std::function<bool(const std::string& name)>& wanted,
                  const std::function<void(const std::string& name, std::string content)>& on_file,
                  const std::function<void(uint64_t bytes)>& progress);

}  // namespace feedline::cli
