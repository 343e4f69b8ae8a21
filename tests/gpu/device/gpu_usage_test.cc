// How busy GPUs are, as a library says that stands in for NVIDIA's.
#include "gpu/device/gpu_usage.h"

#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "support/catch.h"

namespace {

/// Returns what is known once there are so many GPUs.
std::vector<feedline::gpu::GpuUsage> usage_of(size_t count) {
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);;) {
    auto gpus = feedline::gpu::gpu_usage();
    if (gpus.size() == count || std::chrono::steady_clock::now() > until) return gpus;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

TEST_CASE("GPUs are those that NVML tells of, with what it tells") {
  void* const library = dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL);  // dlopen() of its soname then finds it
  REQUIRE(library != nullptr);
  const auto gpus = usage_of(2);
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].name == "Fake GPU 0");
  CHECK(gpus[1].name == "Fake GPU 1");
  CHECK(gpus[1].uuid == "GPU-1");
  CHECK(gpus[0].busy == 0.63);
  CHECK(gpus[1].busy == std::nullopt);
  CHECK(gpus[0].pcie_generation == 5);
  CHECK(gpus[0].pcie_lanes == 4);
  CHECK(gpus[0].pcie_most_lanes == 16);
  CHECK(gpus[1].pcie_lanes == 0);
  CHECK(gpus[0].memory_used == 20ull << 30);
  CHECK(gpus[0].memory_bytes == 80ull << 30);

  auto* const failure = static_cast<std::atomic<int>*>(dlsym(library, "fake_nvml_failure"));
  REQUIRE(failure != nullptr);
  *failure = 15;  // NVML_ERROR_GPU_IS_LOST
  CHECK(usage_of(0).empty());
  *failure = 0;
  CHECK(usage_of(2).size() == 2);
}
