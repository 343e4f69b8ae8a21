#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "feedline/device.h"
#include "gpu/cuda/cuda_launch.h"
#include "support/device_buffer.h"
#include "unpack_device.h"

namespace feedline::test {
namespace {

// A run with its rows on the GPU. The addresses have the same offset within 64-byte lines as those on the host.
class OnGpu {
 public:
  explicit OnGpu(const DeviceRun& run)
      : run_(run),
        tables_(run.unpack.tables().size()),
        numbers_(run.numbers.size_bytes()),
        in_(run.in.size() + 64),
        out_(run.out.size() + 64) {
    put(run.unpack.tables(), tables_.bytes());
    put(std::as_bytes(run.numbers), numbers_.bytes());
    put(run.in, in());
    put(run.out, out());
  }
  void launch() {
    const unpack::UnpackLaunch launch = rows(0, run_.rows);
    if (!launch.empty()) require(gpu::launch_unpack({&launch, 1}, cudaStreamPerThread));
  }
  /// Does the same by two launches, of the first third of the rows and of the rest, which may share a grid.
  void launch_two() {
    const size_t first = run_.rows / 3;
    std::vector<unpack::UnpackLaunch> launches = {rows(0, first), rows(first, run_.rows - first)};
    std::erase_if(launches, [](const unpack::UnpackLaunch& launch) { return launch.empty(); });
    require(gpu::launch_unpack(launches, cudaStreamPerThread));
  }
  void fill(int value) { require(cudaMemsetAsync(out(), value, run_.out.size(), cudaStreamPerThread)); }
  void fetch() {
    require(cudaStreamSynchronize(cudaStreamPerThread));
    require(cudaMemcpy(run_.out.data(), out(), run_.out.size(), cudaMemcpyDeviceToHost));
  }

 private:
  unpack::UnpackLaunch rows(size_t first, size_t count) const {
    const auto* const numbers = run_.numbers.empty() ? nullptr : reinterpret_cast<const int64_t*>(numbers_.bytes());
    return run_.unpack.launch(
        {numbers ? in() : in() + first * run_.in_stride, run_.in_stride, out() + first * run_.out_stride,
         run_.out_stride, static_cast<uint32_t>(count), numbers ? numbers + first : nullptr},
        tables_.bytes());
  }
  static size_t skew(const std::byte* host) { return reinterpret_cast<uintptr_t>(host) % 64; }
  static void put(std::span<const std::byte> bytes, std::byte* to) {
    require(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  std::byte* in() const { return in_.bytes() + skew(run_.in.data()); }
  std::byte* out() const { return out_.bytes() + skew(run_.out.data()); }

  const DeviceRun run_;
  const DeviceBuffer tables_, numbers_, in_, out_;
};

// Returns the time of one call in seconds: the median of several measurements of `repeats` calls each.
double seconds_of(int repeats, const std::function<void()>& call) {
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  std::vector<float> times(11);
  for (float& milliseconds : times) {
    require(cudaEventRecord(begin, cudaStreamPerThread));
    for (int i = 0; i < repeats; i++) call();
    require(cudaEventRecord(end, cudaStreamPerThread));
    require(cudaEventSynchronize(end));
    require(cudaEventElapsedTime(&milliseconds, begin, end));
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]) * 1e-3 / repeats;
}

}  // namespace

const char* const device_name = "GPU";

std::optional<std::string> no_device() {
  const Gpus gpus = visible_gpus();
  return gpus.count > 0 ? std::nullopt : std::optional(gpus.why);
}

void run(const DeviceRun& run) {
  OnGpu gpu(run);
  gpu.launch_two();
  gpu.fetch();
}

std::optional<DeviceSeconds> time(const DeviceRun& batch) {
  constexpr int repeats = 20;
  constexpr size_t bytes = size_t{256} << 20;  // several times a GPU's cache, so that memory is measured
  const size_t times = std::max<size_t>(1, bytes / batch.out.size());
  std::vector<std::byte> in, out(times * batch.out.size());
  for (size_t i = 0; i < times; i++) in.insert(in.end(), batch.in.begin(), batch.in.end());
  OnGpu gpu({batch.unpack, in, batch.in_stride, out, batch.out_stride, times * batch.rows});
  const auto one = [&](auto&& call) { return seconds_of(repeats, call) / static_cast<double>(times); };
  return DeviceSeconds{one([&] { gpu.launch(); }), one([&] { gpu.fill(1); })};
}

}  // namespace feedline::test
