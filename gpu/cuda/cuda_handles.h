// Defines owners of CUDA's events, streams and memory, and makes a GPU's context the current one.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "gpu/cuda/cuda_call.h"

namespace feedline::gpu {

/// The flags of events that only order work and have no times. Threads that wait for such an event sleep.
inline constexpr unsigned untimed = cudaEventDisableTiming | cudaEventBlockingSync;

/// Returns whether `stream` is one of CUDA's default streams, which belong to the thread's current device.
inline bool is_default(Stream stream) {
  return stream.cuda_stream() == cudaStreamLegacy || stream.cuda_stream() == cudaStreamPerThread;
}
/// Throws Error bad_pipeline for a default stream of the thread's current device if that device is not `gpu`.
void check_device(DeviceId gpu, Stream stream);
/// Throws Error device_error if the stream captures a graph. `what` names, for the message, the operation that cannot
/// be part of a graph.
void check_no_capture(DeviceId gpu, cudaStream_t stream, const char* what);

/// The CUDA context of a GPU. feedline makes it current before it calls CUDA on one of the program's threads. Otherwise
/// almost any call would make a context on the thread's current device, whatever stream or event the call names.
class Context {
 public:
  /// Takes the context of the calling thread's current device, which must be `gpu`.
  explicit Context(DeviceId gpu) {
    const auto get_current = entry<CUresult(CUcontext*)>(gpu, "cuCtxGetCurrent");
    push_ = entry<CUresult(CUcontext)>(gpu, "cuCtxPushCurrent");
    pop_ = entry<CUresult(CUcontext*)>(gpu, "cuCtxPopCurrent");
    if (const CUresult result = get_current(&context_); result != CUDA_SUCCESS)
      throw Error(Category::device_error,
                  fmt::format("GPU {}: cuCtxGetCurrent failed with CUresult {}; restart the process", gpu.ordinal,
                              static_cast<int>(result)));
  }

  void push() const noexcept { push_(context_); }
  void pop() const noexcept {
    CUcontext popped;
    pop_(&popped);
  }

 private:
  // Returns a function of the driver. Throws Error device_error if the driver does not have it.
  template <typename Function>
  static Function* entry(DeviceId gpu, const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    call<DriverEntryOp>(gpu, [&] {
      return cudaGetDriverEntryPointByVersion(name, &function, entries_of_version, cudaEnableDefault, &found);
    });
    if (found != cudaDriverEntryPointSuccess)
      throw Error(Category::device_error,
                  fmt::format("GPU {}: the CUDA driver has no {} of CUDA 12.0; install a driver for CUDA 12.0 or newer",
                              gpu.ordinal, name));
    return reinterpret_cast<Function*>(function);
  }
  // The CUDA version since which these three driver functions have their present signatures.
  static constexpr unsigned entries_of_version = 12000;

  CUcontext context_ = nullptr;
  CUresult (*push_)(CUcontext) = nullptr;
  CUresult (*pop_)(CUcontext*) = nullptr;
};

/// Makes a context the current one while one of the program's threads runs code of feedline. The thread may also make
/// calls that CUDA would forbid because a trainer captures a graph on another thread. The destructor restores the
/// thread's state.
class ScopedContext {
 public:
  explicit ScopedContext(const Context& context) noexcept : context_(context) {
    context_.push();
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~ScopedContext() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    context_.pop();
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  const Context& context_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Copies bytes within the GPU's memory, on a stream. Throws Error bad_pipeline for Stream::host, and for a default
/// stream of the thread's current device if that device is not `gpu`.
void copy_on(DeviceId gpu, const Context& context, Stream stream, void* to, const void* from, size_t bytes);

class CudaEvent {
 public:
  CudaEvent(DeviceId gpu, unsigned flags) : gpu_(gpu) {
    call<EventCreateOp>(gpu, [&] { return cudaEventCreateWithFlags(&event_, flags); });
  }
  ~CudaEvent() { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  cudaEvent_t get() const noexcept { return event_; }
  void record(cudaStream_t stream) {
    call<EventRecordOp>(gpu_, [&] { return cudaEventRecord(event_, stream); });
  }
  /// Makes the stream wait for the event. If the event was never recorded, the stream does not wait.
  void wait_on(cudaStream_t stream) const {
    call<StreamWaitOp>(gpu_, [&] { return cudaStreamWaitEvent(stream, event_, 0); });
  }
  /// Makes the calling thread wait for the event.
  void wait() const {
    call<EventSynchronizeOp>(gpu_, [&] { return cudaEventSynchronize(event_); });
  }

 private:
  const DeviceId gpu_;
  cudaEvent_t event_ = nullptr;
};

/// A stream of the current device, with the highest priority: its work is short, and a trainer waits for it. With the
/// priority of the trainer's own streams, the blocks of this stream's kernels would wait until all blocks of a
/// trainer's kernel have begun.
class CudaStream {
 public:
  explicit CudaStream(DeviceId gpu) {
    int highest = 0;
    call<StreamPriorityOp>(gpu, [&] { return cudaDeviceGetStreamPriorityRange(nullptr, &highest); });
    call<StreamCreateOp>(gpu, [&] { return cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, highest); });
  }
  ~CudaStream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t get() const noexcept { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaMemory {
 public:
  CudaMemory(DeviceId gpu, size_t bytes) {
    if (bytes == 0) return;
    call<MallocOp>(gpu, [&] { return cudaMalloc(&memory_, bytes); });
  }
  ~CudaMemory() {
    if (memory_) cudaFree(memory_);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::byte* get() const noexcept { return static_cast<std::byte*>(memory_); }

 private:
  void* memory_ = nullptr;
};

}  // namespace feedline::gpu
