// NCCL, for a loader whose ranks share rows between their GPUs.
#pragma once

#include <memory>

#include "feedline/communicator.h"
#include "feedline/device.h"

namespace feedline::python {

/// Returns a communicator for Options::gpu_communicator. Throws Error as nccl_communicator() does, and device_error if
/// this build or the process has no NCCL.
std::shared_ptr<Communicator> gpu_communicator(std::unique_ptr<Communicator> control, DeviceId gpu);

}  // namespace feedline::python
