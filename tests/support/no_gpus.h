// Leaving out a test case where there is no GPU.
#pragma once

#include "feedline/device.h"
#include "support/skip.h"

namespace feedline::test {

/// Write `if (no_gpus()) return;` in a case: there is none, and it is said why.
inline bool no_gpus() {
  const Gpus found = visible_gpus();
  if (found.count == 0) skip(found.why);
  return found.count == 0;
}

}  // namespace feedline::test
