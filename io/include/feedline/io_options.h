// Options for reading files.
#pragma once

#include <cstdint>

namespace feedline {

enum class Toggle : uint8_t { off, on, automatic };

/// The ways to read files: with io_uring, or with pread on a pool of threads.
enum class BackendKind : uint8_t { automatic, uring, pread };

/// Options for the reading of a feeder's files.
struct IoOptions {
  /// `automatic` uses io_uring if the kernel allows it and the library is built with it, and pread otherwise. With
  /// `uring` the start fails with Error io_error if io_uring is not available.
  BackendKind backend = BackendKind::automatic;
  /// Says whether to read with O_DIRECT, which bypasses the page cache:
  /// * `on`: always. A read fails if the file system refuses O_DIRECT.
  /// * `off`: never.
  /// * `automatic`: if all files together are larger than the memory that this process may use, because the page cache
  ///   cannot help then. Files whose file system refuses O_DIRECT are read through the page cache.
  Toggle direct = Toggle::automatic;
};

}  // namespace feedline
