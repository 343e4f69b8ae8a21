// Calls of the CUDA runtime. A call that fails throws an Error, and tests can make any of the calls fail.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "base/syscall_hooks.h"
#include "feedline/device.h"
#include "feedline/error.h"

namespace feedline::gpu {

// The calls that tests can make fail. They fail with the error that a GPU returns from every call after a failure.
#define FEEDLINE_CUDA_CALL(OP, NAME)                     \
  struct OP {                                            \
    static constexpr const char* name = #NAME;           \
    static constexpr int error = cudaErrorLaunchFailure; \
  }
FEEDLINE_CUDA_CALL(SetDeviceOp, cudaSetDevice);
FEEDLINE_CUDA_CALL(CaptureModeOp, cudaThreadExchangeStreamCaptureMode);
FEEDLINE_CUDA_CALL(DriverEntryOp, cudaGetDriverEntryPointByVersion);
FEEDLINE_CUDA_CALL(MallocOp, cudaMalloc);
FEEDLINE_CUDA_CALL(MallocAsyncOp, cudaMallocAsync);
FEEDLINE_CUDA_CALL(FreeAsyncOp, cudaFreeAsync);
FEEDLINE_CUDA_CALL(CanAccessPeerOp, cudaDeviceCanAccessPeer);
FEEDLINE_CUDA_CALL(EnablePeerOp, cudaDeviceEnablePeerAccess);
FEEDLINE_CUDA_CALL(HostRegisterOp, cudaHostRegister);
FEEDLINE_CUDA_CALL(GetPropertiesOp, cudaGetDeviceProperties);
FEEDLINE_CUDA_CALL(StreamPriorityOp, cudaDeviceGetStreamPriorityRange);
FEEDLINE_CUDA_CALL(StreamCreateOp, cudaStreamCreateWithPriority);
FEEDLINE_CUDA_CALL(EventCreateOp, cudaEventCreateWithFlags);
FEEDLINE_CUDA_CALL(MemcpyOp, cudaMemcpyAsync);
FEEDLINE_CUDA_CALL(LoadOp, cudaFuncGetAttributes);
FEEDLINE_CUDA_CALL(LaunchOp, cudaLaunchKernel);
FEEDLINE_CUDA_CALL(EventRecordOp, cudaEventRecord);
FEEDLINE_CUDA_CALL(StreamWaitOp, cudaStreamWaitEvent);
FEEDLINE_CUDA_CALL(IsCapturingOp, cudaStreamIsCapturing);
FEEDLINE_CUDA_CALL(StreamSynchronizeOp, cudaStreamSynchronize);
FEEDLINE_CUDA_CALL(EventSynchronizeOp, cudaEventSynchronize);
FEEDLINE_CUDA_CALL(EventQueryOp, cudaEventQuery);
FEEDLINE_CUDA_CALL(ElapsedTimeOp, cudaEventElapsedTime);
#undef FEEDLINE_CUDA_CALL

/// Returns the Error for a call that has failed. Its message also says what the user can do.
Error failure(DeviceId gpu, const char* call, cudaError_t error);

/// Runs `body`, which makes the CUDA call `Op` and returns its result. Throws Error device_error if the call fails.
template <typename Op, typename Call>
void call(DeviceId gpu, Call&& body) {
  if (const int error = injected<Op>()) throw failure(gpu, Op::name, static_cast<cudaError_t>(error));
  const cudaError_t error = body();
  if (error == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the next check of the thread's last error would report again
  throw failure(gpu, Op::name, error);
}

/// Makes the GPU the current device of the calling thread, which must be one of feedline's own threads.
void enter(DeviceId gpu);

/// Runs `body` in a new thread that has entered the GPU, and waits until that thread ends. Throws what `body` throws,
/// and Error io_error if the thread cannot be started. The new thread leaves the caller's current device as it is. To
/// change the caller's current device and then set it back would make a context on the device that it is set back to.
void on_gpu(DeviceId gpu, const std::function<void()>& body);

}  // namespace feedline::gpu
