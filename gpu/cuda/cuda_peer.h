// Peer access: whether a GPU reads the memory of another GPU of the process by itself.
#pragma once

#include "feedline/device.h"

namespace feedline::gpu {

/// Lets `gpu`, which is the current device, read the memory of `other`. Returns whether that works: whether CUDA offers
/// peer access and switches it on, and copied bytes arrive. If not, writes the reason to the log, once for each
/// process.
///
/// Some machines offer peer access and then deliver wrong bytes, for example where an IOMMU translates the addresses of
/// the bus. So the calls for a pair of GPUs copy a pattern of 1 MiB and compare it, until it has once arrived
/// unchanged. Makes a context on both GPUs. Thread-safe.
bool reach(DeviceId gpu, DeviceId other);

}  // namespace feedline::gpu
