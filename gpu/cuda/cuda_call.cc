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
      return "; set memory.device_limit, or a smaller parallelism.device_prefetch, or keep fewer batches";
    case cudaErrorNoKernelImageForDevice:
      return "; feedline was built for other GPUs: set -Dgpu_archs";
    case cudaErrorTooManyPeers:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorMapBufferObjectFailed:
      return "";  // there is no peer access, and reach() goes without it
    case cudaErrorStreamCaptureImplicit:
      return "; a default stream cannot be used while a stream captures that was created without "
             "cudaStreamNonBlocking: "
             "capture on one that was, or call next(), ready_on() and release_on() on streams of your own";
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorCapturedEvent:
      return "; call next(), ready_on() and release_on() outside of a stream's capture, and fill what a graph reads "
             "with next_into()";
    case cudaErrorInvalidResourceHandle:
      return "; a stream must outlive the batches that are used on it, and be one of the batch's GPU";
    default:
      return "; after a failure every further call for this GPU fails, too: restart the process";
  }
}

}  // namespace

Error failure(DeviceId gpu, const char* call, cudaError_t error) {
  return Error(Category::device_error, fmt::format("GPU {}: {}: {} ({}){}", gpu.ordinal, call,
                                                   cudaGetErrorString(error), cudaGetErrorName(error), advice(error)));
}

// While a trainer captures a graph, CUDA does not let other threads make calls like cudaMalloc(), unless these threads
// are in the relaxed mode.
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
