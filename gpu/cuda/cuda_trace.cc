#include <nvtx3/nvToolsExt.h>

#include "gpu/device/trace.h"

namespace feedline::gpu {

void push_range(const char* name) noexcept { nvtxRangePushA(name); }
void pop_range() noexcept { nvtxRangePop(); }

}  // namespace feedline::gpu
