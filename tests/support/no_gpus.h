// Skips a test case if there is no GPU.
#pragma once

#include "feedline/device.h"
#include "support/skip.h"

namespace feedline::test {

/// Returns true and prints the reason if there is no GPU. Write `if (no_gpus()) return;` in a test case.
inline bool no_gpus() {
  const Gpus found = visible_gpus();
  if (found.count == 0) skip(found.why);
  return found.count == 0;
}

}  // namespace feedline::test
