// Sets up peer access: a GPU reads the memory of another GPU directly, without the host.
#pragma once

#include "feedline/device.h"

namespace feedline::gpu {

/// Lets `gpu`, which is the current device, read the memory of `other`. Returns true if this works, that is, if CUDA
/// offers and enables peer access and copied bytes arrive. If it does not work, logs the reason, once for each process.
///
/// Some machines offer peer access and then deliver wrong bytes, for example where an IOMMU translates the addresses of
/// the bus. So a call copies a pattern of 1 MiB and compares it, unless an earlier call for the same two GPUs has found
/// it unchanged. Makes a context on both GPUs. Thread-safe.
bool reach(DeviceId gpu, DeviceId other);

}  // namespace feedline::gpu
