// Peer access: whether a GPU reads the memory of another GPU of the process by itself.
#pragma once

#include "feedline/device.h"

namespace feedline::gpu {

/// Lets `gpu`, whose device is current, read the memory of `other`, and returns whether that works: CUDA offers it,
/// switches it on, and what is copied arrives. Otherwise writes why to the log, once for each process. Some machines
/// offer peer access and then deliver wrong bytes, for example where an IOMMU translates the addresses of the bus; so a
/// pattern of 1 MiB is copied and compared, until it has arrived once. Makes a context on both GPUs. Thread-safe.
bool reach(DeviceId gpu, DeviceId other);

}  // namespace feedline::gpu
