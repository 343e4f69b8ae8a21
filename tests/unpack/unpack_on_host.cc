#include "tests/support/run_threads.h"
#include "unpack_device.h"

namespace feedline::test {

const char* const device_name = "threads of a GPU";

std::optional<std::string> no_device() { return std::nullopt; }

void run(const DeviceRun& run) {
  const unpack::UnpackLaunch launch =
      run.unpack.launch({run.in.data(), run.in_stride, run.out.data(), run.out_stride, static_cast<uint32_t>(run.rows),
                         run.numbers.empty() ? nullptr : run.numbers.data()},
                        run.unpack.tables().data());
  // Few threads do several rows each; many do one.
  gpu::run_threads(launch, run.rows % 2 ? 64 : uint64_t{1} << 20);
}

std::optional<DeviceSeconds> time(const DeviceRun&) { return std::nullopt; }

}  // namespace feedline::test
