// A backend that does to reads what a bad day does: late, out of order, failed. For tests of what stands on backends.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "io/read/read_backend.h"

namespace feedline::test {

/// What happens to the n-th read submitted (n = 1, 2, ...) depends on these and on n alone.
struct Faults {
  uint64_t seed = 1;
  /// Of the reads outstanding, one may be overtaken by up to this many submitted after it.
  uint64_t overtaken_by = 0;
  /// Each completion comes late, by less than this.
  std::chrono::microseconds delay{0};
  /// Reads that fail with `error`: the one of this number (0: none) ...
  uint64_t failing = 0;
  /// ... and one in this many, by chance (0: none). Their memory is scribbled over first.
  uint64_t one_in = 0;
  int error = EIO;
};

/// Takes the place of io::make_read_backend. One thread, no system call hooks, `options.depth` and `backend` ignored.
std::unique_ptr<io::ReadBackend> make_faulty_backend(std::vector<io::FileId> files, const io::BackendOptions& options,
                                                     io::ReadDone done, const Faults& faults);

}  // namespace feedline::test
