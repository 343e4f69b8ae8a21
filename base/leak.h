// Keeps memory that must never be freed.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace feedline {

/// Keeps `what` alive until the process ends. Thread-safe.
///
/// This is for memory that somebody else may still use and that can therefore never be freed safely. A failed
/// communicator may still read or write the buffers of its last calls (see feedline/mpi_communicator.h). A GPU that can
/// no longer be reached may still use its memory.
inline void leak(std::shared_ptr<const void> what) {
  static Mutex mutex;
  static auto* const kept FEEDLINE_PT_GUARDED_BY(mutex) = new std::vector<std::shared_ptr<const void>>;
  const Lock lock(mutex);
  kept->push_back(std::move(what));
}

}  // namespace feedline
