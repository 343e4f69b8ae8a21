// Calls of the CUDA runtime: what fails becomes an Error, and tests can let any of them fail.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "base/syscall_hooks.h"
#include "feedline/device.h"
#include "feedline/error.h"

namespace feedline::gpu {

// The calls that tests let fail, each with the error that a GPU which has failed answers everything with.
#define FEEDLINE_CUDA_CALL(OP, NAME)                     \
  struct OP {                                            \
    static constexpr const char* name = #NAME;           \
    static constexpr int error = cudaErrorLaunchFailure; \
  }
FEEDLINE_CUDA_CALL(SetDeviceOp, cudaSetDevice);
FEEDLINE_CUDA_CALL(CaptureModeOp, cudaThreadExchangeStreamCaptureMode);
FEEDLINE_CUDA_CALL(DriverEntryOp, cudaGetDriverEntryPointByVersion);
FEEDLINE_CUDA_CALL(MallocOp, cudaMalloc);
FEEDLINE_CUDA_CALL(CanAccessPeerOp, cudaDeviceCanAccessPeer);
FEEDLINE_CUDA_CALL(EnablePeerOp, cudaDeviceEnablePeerAccess);
FEEDLINE_CUDA_CALL(HostRegisterOp, cudaHostRegister);
FEEDLINE_CUDA_CALL(StreamCreateOp, cudaStreamCreateWithFlags);
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

/// What to tell of a call that has failed, with what to do.
Error failure(DeviceId gpu, const char* call, cudaError_t error);

template <typename Op, typename Call>
void call(DeviceId gpu, Call&& body) {
  if (const int error = injected<Op>()) throw failure(gpu, Op::name, static_cast<cudaError_t>(error));
  const cudaError_t error = body();
  if (error == cudaSuccess) return;
  cudaGetLastError();  // else the next call that looks would report it again
  throw failure(gpu, Op::name, error);
}

/// Makes the GPU the calling thread's device, in a thread of ours.
void enter(DeviceId gpu);

/// Runs `body` in a thread of its own, which has entered the GPU: the caller's current device stays what it is. To put
/// it back would make a context on it. Throws what `body` throws.
void on_gpu(DeviceId gpu, const std::function<void()>& body);

}  // namespace feedline::gpu
