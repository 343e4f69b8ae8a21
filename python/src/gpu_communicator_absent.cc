// Stands in for gpu_communicator.cc in a build without NCCL.
#include "feedline/error.h"
#include "python/src/gpu_communicator.h"

namespace feedline::python {

std::shared_ptr<Communicator> gpu_communicator(std::unique_ptr<Communicator>, DeviceId) {
  throw Error(Category::device_error, "this feedline was built without NCCL; leave out gpu_communicator");
}

}  // namespace feedline::python
