// Implements gpu/device/gpu_model.h with CUDA.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "gpu/cuda/cuda_call.h"
#include "gpu/device/gpu_model.h"

namespace feedline::gpu {
namespace {

// The compute capabilities that kernels were compiled for, the oldest first: 75 is 7.5, 120 is 12.0.
constexpr int built_for[] = {FEEDLINE_GPU_ARCHS};

std::string text_of(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); i++)
    text += fmt::format("{}{:02x}", i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                        static_cast<unsigned char>(uuid.bytes[i]));
  return text;
}

}  // namespace

GpuModel::Kernels GpuModel::kernels() const noexcept {
  // Code that is compiled for a compute capability also runs on all later capabilities with the same major number.
  if (std::ranges::any_of(built_for, [&](int arch) { return arch / 10 == major && arch % 10 <= minor; }))
    return Kernels::compiled;
  return 10 * major + minor > built_for[0] ? Kernels::by_driver : Kernels::none;
}

GpuModel model_of(DeviceId gpu) {
  cudaDeviceProp properties{};
  call<GetPropertiesOp>(gpu, [&] { return cudaGetDeviceProperties(&properties, gpu.ordinal); });
  return {properties.major, properties.minor, text_of(properties.uuid)};
}

std::string oldest_capability() { return fmt::format("{}.{}", built_for[0] / 10, built_for[0] % 10); }

void check_kernels(DeviceId gpu) {
  const GpuModel model = model_of(gpu);
  switch (model.kernels()) {
    case GpuModel::Kernels::compiled:
      return;
    case GpuModel::Kernels::none:
      throw Error(Category::device_error,
                  fmt::format("GPU {} has the compute capability {}.{}, but feedline was built for {} or higher; leave "
                              "out this GPU, or build feedline with -Dgpu_archs={}{}",
                              gpu.ordinal, model.major, model.minor, oldest_capability(), model.major, model.minor));
    case GpuModel::Kernels::by_driver:
      log_warning_once(
          fmt::format("the driver compiles kernels for GPU {} now, because feedline was not built for its compute "
                      "capability {}.{}: this takes about 10 s the first time; build feedline with -Dgpu_archs={}{} "
                      "to avoid the wait",
                      gpu.ordinal, model.major, model.minor, model.major, model.minor));
      return;
  }
}

}  // namespace feedline::gpu
