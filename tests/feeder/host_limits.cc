// With FEEDLINE_TEST_GLOBAL_CONTROL=1 the whole test program runs while oneTBB is allowed no worker thread.
#include <oneapi/tbb/global_control.h>

#include <cstdlib>
#include <optional>

#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "support/catch.h"

namespace {

struct HostLimits : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    if (std::getenv("FEEDLINE_TEST_GLOBAL_CONTROL")) limit.emplace(tbb::global_control::max_allowed_parallelism, 1);
  }
  void testRunEnded(const Catch::TestRunStats&) override { limit.reset(); }
  std::optional<tbb::global_control> limit;
};
CATCH_REGISTER_LISTENER(HostLimits)

}  // namespace
