// Copies of batches in GPU memory of their own.
#pragma once

#include <memory>
#include <span>

#include "gpu/cuda/cuda_handles.h"
#include "gpu/device/stream_order.h"

namespace feedline::gpu {

/// Does StreamOrder::copy(). `written` is the event after which the sources are written; null if they are already
/// written.
std::shared_ptr<OwnMemory> copy_on_gpu(DeviceId gpu, const Context& context, const CudaEvent* written,
                                       std::span<const CopyWithin> parts, size_t bytes);

}  // namespace feedline::gpu
