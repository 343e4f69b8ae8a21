#include "python/src/gpu_communicator.h"

#include <utility>

#include "feedline/nccl_communicator.h"

namespace feedline::python {

std::shared_ptr<Communicator> gpu_communicator(std::unique_ptr<Communicator> control, DeviceId gpu) {
  return nccl_communicator(std::move(control), gpu);
}

}  // namespace feedline::python
