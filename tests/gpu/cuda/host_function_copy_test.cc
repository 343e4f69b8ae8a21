// Which bytes a copy to a GPU takes if a host function before it on the same stream writes them. Runs on real GPUs only.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/device_buffer.h"
#include "support/no_gpus.h"

using namespace feedline::test;

namespace {

struct Written {
  char* data;
  size_t bytes;
};

// Gives a stream a host function that sets all bytes of zeros to 1, and then a copy of them. Returns what was copied.
std::string copy_after_host_function(char* data, size_t bytes) {
  const DeviceStream stream;
  const DeviceBuffer device(bytes);
  std::memset(data, 0, bytes);
  Written written{data, bytes};
  require(cudaLaunchHostFunc(
      stream.get(),
      [](void* argument) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the copy is called meanwhile
        const Written& to = *static_cast<Written*>(argument);
        std::memset(to.data, 1, to.bytes);
      },
      &written));
  require(cudaMemcpyAsync(device.data(), data, bytes, cudaMemcpyHostToDevice, stream.get()));
  require(cudaStreamSynchronize(stream.get()));
  std::string copied(bytes, '\0');
  require(cudaMemcpy(copied.data(), device.data(), bytes, cudaMemcpyDeviceToHost));
  return copied;
}

}  // namespace

TEST_CASE("a copy of pinned memory takes what a host function before it has written") {
  if (no_gpus()) return;
  for (const size_t bytes : {size_t{4}, size_t{4000}, size_t{64} << 10, size_t{1} << 20, size_t{32} << 20}) {
    const std::string wanted(bytes, '\1');
    void* pinned = nullptr;
    require(cudaMallocHost(&pinned, bytes));
    const std::unique_ptr<void, cudaError_t (*)(void*)> owner(pinned, cudaFreeHost);
    CHECK(copy_after_host_function(static_cast<char*>(pinned), bytes) == wanted);
    // Of pageable memory CUDA promises nothing, and the fake GPUs take what is there when the copy is called.
    std::vector<char> pageable(bytes);
    fmt::print("pageable memory of {} bytes: {}\n", bytes,
               copy_after_host_function(pageable.data(), bytes) == wanted ? "what the host function wrote"
                                                                          : "what was there when the copy was called");
  }
}
