#include "gpu/cuda/cuda_call.h"

#include <fmt/format.h>

#include <exception>
#include <system_error>

#include "base/thread.h"

namespace feedline::gpu {
namespace {

const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "; set memory.device_limit, lower parallelism.device_prefetch, or keep fewer batches";
    case cudaErrorNoKernelImageForDevice:
      return "; feedline was not built for this GPU: build feedline with -Dgpu_archs set to its compute capability";
    case cudaErrorTooManyPeers:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorMapBufferObjectFailed:
      return "";  // reach() then works without peer access, and logs why
    case cudaErrorStreamCaptureImplicit:
      return "; a default stream cannot be used while a stream that was created without cudaStreamNonBlocking captures "
             "a graph: capture on a stream that was created with cudaStreamNonBlocking, or call next(), ready_on() and "
             "release_on() on streams other than the default streams";
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorCapturedEvent:
      return "; a captured graph cannot contain this call: call next(), ready_on() and release_on() outside of the "
             "capture, and use next_into() to fill the memory that the graph reads";
    case cudaErrorInvalidResourceHandle:
      return "; a stream must exist for as long as batches are used on it, and must belong to the GPU of the batch";
    default:
      return "; after such a failure all later calls for this GPU fail: restart the process";
  }
}

}  // namespace

Error failure(DeviceId gpu, const char* call, cudaError_t error) {
  return Error(Category::device_error, fmt::format("GPU {}: {}: {} ({}){}", gpu.ordinal, call,
                                                   cudaGetErrorString(error), cudaGetErrorName(error), advice(error)));
}

// While a trainer captures a graph, CUDA does not let other threads make calls like cudaMalloc(), unless these threads
// are in the relaxed capture mode.
void enter(DeviceId gpu) {
  call<SetDeviceOp>(gpu, [&] { return cudaSetDevice(gpu.ordinal); });
  call<CaptureModeOp>(gpu, [] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    return cudaThreadExchangeStreamCaptureMode(&mode);
  });
}

void on_gpu(DeviceId gpu, const std::function<void()>& body) {
  std::exception_ptr failed;
  try {
    start_thread("feedline-gpu", [&] {
      try {
        enter(gpu);
        body();
      } catch (...) {
        failed = std::current_exception();
      }
    }).join();
  } catch (const std::system_error& error) {
    throw Error(Category::io_error,
                fmt::format("a thread for GPU {} cannot be started: {}", gpu.ordinal, error.what()));
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace feedline::gpu
