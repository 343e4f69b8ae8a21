// In place of cuda_ring.cc, in a build without CUDA.
#include "feedline/error.h"
#include "gpu/device_ring.h"

namespace feedline {

Gpus visible_gpus() { return {0, "feedline was built without CUDA"}; }

namespace gpu {

std::shared_ptr<DeviceRing> open_device_ring(DeviceId, size_t, size_t, std::span<const std::byte>) {
  throw Error(Category::device_error, visible_gpus().why);
}

bool pin(std::span<std::byte>, DeviceId) { return false; }
void unpin(std::span<std::byte>, DeviceId) noexcept {}

}  // namespace gpu
}  // namespace feedline
