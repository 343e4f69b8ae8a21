// Whether a feed has left nothing behind on fake GPUs.
#pragma once

#include <chrono>
#include <thread>

#include "support/catch.h"
#include "support/fake_cuda.h"

namespace feedline::test {

// A stream or a worker of oneTBB's may drop what it holds a moment after the feeder has gone.
inline bool all_is_given_back(const FakeCudaState& since, bool keeps_pinned = false) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const FakeCudaState now = fake_cuda_state();
    // `since` may have met such a message, too.
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
