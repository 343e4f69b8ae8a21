// Finds the GPUs of this machine, and pins host memory so that GPUs can access it directly.
#include <fmt/format.h>

#include "base/log.h"
#include "gpu/cuda/cuda_call.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/numa.h"

namespace feedline {
namespace gpu {

bool pin(std::span<std::byte> memory, DeviceId gpu) noexcept {
  try {
    on_gpu(gpu, [&] {
      char address[32];  // on the PCI bus
      if (cudaDeviceGetPCIBusId(address, sizeof(address), gpu.ordinal) != cudaSuccess)
        cudaGetLastError();
      else if (const auto node = node_of_pci(address))
        prefer_node(memory, *node);
      call<HostRegisterOp>(gpu,
                           [&] { return cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable); });
    });
    return true;
  } catch (const std::exception& error) {
    log_warning(fmt::format("host memory cannot be pinned, so copies to GPUs are slower: {}", error.what()));
    return false;
  }
}

void unpin(std::span<std::byte> memory, DeviceId gpu) noexcept {
  try {
    on_gpu(gpu, [&] { cudaHostUnregister(memory.data()); });
  } catch (const std::exception&) {
    // If the driver is gone, nothing is pinned any more.
  }
}

}  // namespace gpu

Gpus visible_gpus() {
  Gpus gpus;
  switch (const cudaError_t error = cudaGetDeviceCount(&gpus.count)) {
    case cudaSuccess:
      if (gpus.count == 0) gpus.why = "the CUDA driver finds no GPU";
      return gpus;
    case cudaErrorInsufficientDriver:
      gpus.why =
          "the system has no CUDA driver, or its CUDA driver is older than the CUDA version that feedline was "
          "built with";
      break;
    case cudaErrorNoDevice:
      gpus.why = "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide them)";
      break;
    default:
      gpus.why = fmt::format("CUDA does not start: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
  }
  cudaGetLastError();
  gpus.count = 0;
  return gpus;
}

}  // namespace feedline
