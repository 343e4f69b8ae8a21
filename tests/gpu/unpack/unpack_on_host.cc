#include "tests/support/run_threads.h"
#include "unpack_device.h"

namespace feedline::test {

const char* const device_name = "threads of a GPU";

std::optional<std::string> no_device() { return std::nullopt; }

void run(const DeviceRun& run) {
  gpu::run_threads(run.unpack.launch({run.in.data(), run.in_stride, run.out.data(), run.out_stride, run.rows,
                                      run.numbers.empty() ? nullptr : run.numbers.data()},
                                     run.unpack.tables().data()));
}

std::optional<DeviceSeconds> time(const DeviceRun&) { return std::nullopt; }

}  // namespace feedline::test
