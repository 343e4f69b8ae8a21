#include "gpu/cuda/cuda_peer.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/audit.h"
#include "base/log.h"
#include "base/mutex.h"
#include "gpu/cuda/cuda_handles.h"

namespace feedline::gpu {
namespace {

/// Copies a pattern from the host to `other`, from there to `gpu` (the current device), and from there back to the
/// host. Returns whether the pattern has come back unchanged.
bool pattern_arrives(DeviceId gpu, DeviceId other) {
  constexpr size_t bytes = 1 << 20;
  std::vector<uint64_t> pattern(bytes / sizeof(uint64_t)), arrived(pattern.size());
  for (size_t i = 0; i < pattern.size(); i++) pattern[i] = mix64(i);
  const auto copy = [&](DeviceId on, void* to, const void* from) {
    const CudaStream stream(on);
    call<MemcpyOp>(on, [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.get()); });
    call<StreamSynchronizeOp>(on, [&] { return cudaStreamSynchronize(stream.get()); });
  };
  std::unique_ptr<CudaMemory> there;
  on_gpu(other, [&] {
    there = std::make_unique<CudaMemory>(other, bytes);
    copy(other, there->get(), pattern.data());
  });
  bool same = false;
  std::exception_ptr failed;  // the first failure, which is the reason for the later ones
  const auto attempt = [&](auto&& body) {
    try {
      body();
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  };
  attempt([&] {
    const CudaMemory here(gpu, bytes);
    copy(gpu, here.get(), there->get());
    copy(gpu, arrived.data(), here.get());
    same = arrived == pattern;
  });
  attempt([&] { on_gpu(other, [&] { there.reset(); }); });
  if (failed) std::rethrow_exception(failed);
  return same;
}

/// Returns why `gpu` cannot read the memory of `other`; an empty text if it can.
std::string why_not(DeviceId gpu, DeviceId other) {
  static Mutex mutex;
  static std::set<std::pair<int, int>> tried;  // pairs (gpu, other) for which the pattern has arrived
  const Lock lock(mutex);
  int can = 0;
  call<CanAccessPeerOp>(gpu, [&] { return cudaDeviceCanAccessPeer(&can, gpu.ordinal, other.ordinal); });
  if (!can) return "CUDA offers no peer access between these GPUs";
  bool switched_on = true;
  call<EnablePeerOp>(gpu, [&] {
    const cudaError_t error = cudaDeviceEnablePeerAccess(other.ordinal, 0);
    if (error != cudaErrorPeerAccessAlreadyEnabled) return error;
    switched_on = false;
    cudaGetLastError();
    return cudaSuccess;
  });
  if (tried.contains({gpu.ordinal, other.ordinal})) return {};
  if (pattern_arrives(gpu, other)) {
    tried.insert({gpu.ordinal, other.ordinal});
    return {};
  }
  if (switched_on && cudaDeviceDisablePeerAccess(other.ordinal) != cudaSuccess) cudaGetLastError();
  return "a test copy between these GPUs arrived with wrong bytes; a likely cause is an IOMMU that translates the "
         "addresses of the PCIe bus; to use peer copies, turn the IOMMU off or set it to pass-through";
}

}  // namespace

bool reach(DeviceId gpu, DeviceId other) {
  std::string why;
  try {
    why = why_not(gpu, other);
  } catch (const Error& error) {
    why = error.message();
  }
  if (why.empty()) return true;
  log_warning_once(
      fmt::format("GPU {} cannot read the memory of GPU {}, so rows for both GPUs are copied from the host to each of "
                  "them: {}",
                  gpu.ordinal, other.ordinal, why));
  return false;
}

}  // namespace feedline::gpu
