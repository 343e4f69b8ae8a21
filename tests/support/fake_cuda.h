// Fake GPUs, simulated on the host: who links fake_cuda.cc instead of the CUDA runtime has as many as he likes.
//
// Streams are threads that work in their own time, so what is not ordered by events comes in any order. Kernels are run
// thread by thread (support/run_threads.h), which is their own code. Memory of a device can only be touched by what
// streams are given: the host faults. What a real GPU does is for a real GPU to show (suite 'gpu'); this shows what the
// host does with it: order, life times, failures.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <utility>

struct CUstream_st;

namespace feedline::test {

/// Every GPU from now on; what there was is gone.
void act_gpus(int count);

/// Device memory can be touched by the host: for code of a program's own that is run on a stream, see act_on(). Before
/// there is any; also before main.
void act_reachable_memory();

/// No other GPU can read this one's memory by itself.
void act_unreachable(int gpu);

/// What the driver says in place of a number of GPUs: cudaErrorNoDevice, cudaErrorInsufficientDriver...
void act_no_driver(int error);

/// The stream captures a graph, in the mode that forbids all threads which are not relaxed about it what waits for a
/// GPU, or takes its memory.
void act_capture(CUstream_st* stream, bool capturing);

/// Like a kernel that crashed: what has been given to GPUs is not done, and every call fails from now on.
void fail_gpus();

/// Gives the stream work of the test's own.
void act_on(CUstream_st* stream, std::function<void()> work);
/// Where streams find what lies at an address of a device.
std::byte* fake_pages(const void* address);

struct FakeCudaState {
  std::set<int> contexts;                  // GPUs that a context was made on: by nearly any call, on the current device
  std::set<std::pair<int, int>> reaching;  // which GPU reads which other's memory by itself
  size_t streams = 0, events = 0;          // that there are
  size_t allocations = 0;                  // of device memory
  size_t pinned = 0;                       // ranges of the host's
  size_t pageable_copies = 0;              // from memory that is not pinned
  bool operator==(const FakeCudaState&) const = default;
};
FakeCudaState fake_cuda_state();

}  // namespace feedline::test
