// Calls of the CUDA runtime. A call that fails throws an Error, and tests can make any of the calls fail.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "base/syscall_hooks.h"
#include "feedline/device.h"
#include "feedline/error.h"

namespace feedline::gpu {

// The calls that tests can make fail. They fail with the error that a GPU returns from every call after a failure.
template <OperationName name>
using CudaCall = HookedCall<name, cudaErrorLaunchFailure>;
using SetDeviceOp = CudaCall<"cudaSetDevice">;
using CaptureModeOp = CudaCall<"cudaThreadExchangeStreamCaptureMode">;
using DriverEntryOp = CudaCall<"cudaGetDriverEntryPointByVersion">;
using MallocOp = CudaCall<"cudaMalloc">;
using MallocAsyncOp = CudaCall<"cudaMallocAsync">;
using FreeAsyncOp = CudaCall<"cudaFreeAsync">;
using CanAccessPeerOp = CudaCall<"cudaDeviceCanAccessPeer">;
using EnablePeerOp = CudaCall<"cudaDeviceEnablePeerAccess">;
using HostRegisterOp = CudaCall<"cudaHostRegister">;
using GetPropertiesOp = CudaCall<"cudaGetDeviceProperties">;
using StreamPriorityOp = CudaCall<"cudaDeviceGetStreamPriorityRange">;
using StreamCreateOp = CudaCall<"cudaStreamCreateWithPriority">;
using EventCreateOp = CudaCall<"cudaEventCreateWithFlags">;
using MemcpyOp = CudaCall<"cudaMemcpyAsync">;
using LoadOp = CudaCall<"cudaFuncGetAttributes">;
using LaunchOp = CudaCall<"cudaLaunchKernel">;
using EventRecordOp = CudaCall<"cudaEventRecord">;
using StreamWaitOp = CudaCall<"cudaStreamWaitEvent">;
using IsCapturingOp = CudaCall<"cudaStreamIsCapturing">;
using StreamSynchronizeOp = CudaCall<"cudaStreamSynchronize">;
using EventSynchronizeOp = CudaCall<"cudaEventSynchronize">;
using EventQueryOp = CudaCall<"cudaEventQuery">;
using ElapsedTimeOp = CudaCall<"cudaEventElapsedTime">;

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
/// and Error io_error if the thread cannot be started. The new thread leaves the caller's current device as it is.
/// Changing the caller's current device and then setting it back would make a context on the device to which it is set
/// back.
void on_gpu(DeviceId gpu, const std::function<void()>& body);

}  // namespace feedline::gpu
