// Checks that a feed has given back everything that it took on fake GPUs.
#pragma once

#include <chrono>
#include <thread>

#include "support/catch.h"
#include "support/fake_cuda.h"

namespace feedline::test {

// Returns whether no more streams, events, allocations and pinned ranges exist than at `since`. Waits up to 10 s,
// because a stream or a worker thread of oneTBB may drop what it holds a moment after the feeder has ended.
inline bool all_is_given_back(const FakeCudaState& since, bool keeps_pinned = false) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const FakeCudaState now = fake_cuda_state();
    // Not ==: `since` may itself have been taken before such a late release.
    if (now.streams <= since.streams && now.events <= since.events && now.allocations <= since.allocations &&
        (now.pinned <= since.pinned || keeps_pinned))
      return true;
    if (std::chrono::steady_clock::now() > end) {
      UNSCOPED_INFO(now.streams << " streams, " << now.events << " events, " << now.allocations << " allocations, "
                                << now.pinned << " pinned, not " << since.streams << ", " << since.events << ", "
                                << since.allocations << ", " << since.pinned);
      return false;
    }
    std::this_thread::yield();
  }
}

}  // namespace feedline::test
