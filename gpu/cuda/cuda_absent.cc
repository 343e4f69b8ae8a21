// Stands in for the sources that use CUDA, in a build without CUDA.
#include "feedline/error.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/gpu_model.h"
#include "gpu/device/queue.h"
#include "gpu/device/trace.h"

namespace feedline {

Gpus visible_gpus() { return {0, "feedline was built without CUDA"}; }

namespace gpu {

std::shared_ptr<DeviceRing> open_device_ring(const DeviceRingOptions&) {
  throw Error(Category::device_error, visible_gpus().why);
}

std::shared_ptr<Queue> cuda_queue(DeviceId) { throw Error(Category::device_error, visible_gpus().why); }

GpuModel model_of(DeviceId) { throw Error(Category::device_error, visible_gpus().why); }
GpuModel::Kernels GpuModel::kernels() const noexcept { return Kernels::none; }
std::string oldest_capability() { return "none"; }

bool pin(std::span<std::byte>, DeviceId) noexcept { return false; }
void unpin(std::span<std::byte>, DeviceId) noexcept {}

void push_range(const char*) noexcept {}
void pop_range() noexcept {}

}  // namespace gpu
}  // namespace feedline
