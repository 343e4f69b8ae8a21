// A read backend that delays, reorders and fails reads, for tests of the code that uses backends.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/read/read_backend.h"

namespace feedline::test {

/// The faults to inject. What happens to the n-th submitted read (n = 1, 2, ...) depends only on these values and on n.
struct Faults {
  uint64_t seed = 1;
  /// An outstanding read may be overtaken by up to this many reads that were submitted after it.
  uint64_t overtaken_by = 0;
  /// Each completion is delayed by less than this.
  std::chrono::microseconds delay{0};
  /// The number of the one read that fails with `error` (0: none).
  uint64_t failing = 0;
  /// Besides, one read in this many fails with `error`, by chance (0: none). The memory of each failing read is
  /// overwritten first.
  uint64_t one_in = 0;
  int error = EIO;
};

/// Makes a faulty backend in place of io::make_read_backend. It has one thread and no system call hooks, and ignores
/// `options.depth` and `options.backend`.
std::unique_ptr<io::ReadBackend> make_faulty_backend(std::vector<io::FileId> files, const io::BackendOptions& options,
                                                     io::ReadDone done, const Faults& faults);

}  // namespace feedline::test
