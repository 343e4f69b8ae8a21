// How bytes come off the disk.
#pragma once

#include <cstdint>

namespace feedline {

enum class Toggle : uint8_t { off, on, automatic };
enum class BackendKind : uint8_t { automatic, uring, pread };

struct IoOptions {
  BackendKind backend = BackendKind::automatic;  // automatic: io_uring where the kernel allows it, else pread
  /// O_DIRECT. automatic: where all files together exceed the memory this process may use, so that the page cache
  /// cannot help.
  Toggle direct = Toggle::automatic;
};

}  // namespace feedline
