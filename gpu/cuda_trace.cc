#include <nvtx3/nvToolsExt.h>

#include "gpu/trace.h"

namespace feedline::gpu {

TraceRange::TraceRange(const char* name) noexcept { nvtxRangePushA(name); }
TraceRange::~TraceRange() { nvtxRangePop(); }

}  // namespace feedline::gpu
