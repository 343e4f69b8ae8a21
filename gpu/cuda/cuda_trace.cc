#include <nvtx3/nvToolsExt.h>

#include "gpu/device/trace.h"

namespace feedline::gpu {

TraceRange::TraceRange(const char* name) noexcept { nvtxRangePushA(name); }
TraceRange::~TraceRange() { nvtxRangePop(); }

}  // namespace feedline::gpu
