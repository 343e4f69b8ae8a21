// Memory that must not be freed.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace feedline {

/// What a communicator that has failed may still read or write in its own time (see feedline/mpi_communicator.h), and
/// what lies on a GPU that cannot be reached any more.
inline void leak(std::shared_ptr<const void> what) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(what));
}

}  // namespace feedline
