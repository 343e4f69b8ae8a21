// Copies batches to GPU memory of their own.
#pragma once

#include <memory>
#include <span>

#include "gpu/cuda/cuda_handles.h"
#include "gpu/device/stream_order.h"

namespace feedline::gpu {

/// Implements StreamOrder::copy(): copies `parts` to `bytes` bytes of new memory. `written` is the event after which
/// the sources of the copies are written; null if they are already written.
std::shared_ptr<OwnMemory> copy_on_gpu(DeviceId gpu, const Context& context, const CudaEvent* written,
                                       std::span<const CopyWithin> parts, size_t bytes);

}  // namespace feedline::gpu
