// Owners of what CUDA makes, and its context.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "gpu/cuda/cuda_call.h"

namespace feedline::gpu {

/// CUDA's default streams are those of the thread's current device.
inline bool is_default(Stream stream) { return stream == Stream::cuda_legacy || stream == Stream::cuda_per_thread; }
/// Throws Error bad_pipeline for one that is another GPU's.
void check_device(DeviceId gpu, Stream stream);
/// Throws Error device_error where the stream captures a graph; `what` cannot be a part of one.
void check_no_capture(DeviceId gpu, cudaStream_t stream, const char* what);

/// The context of a GPU, for calls on the program's own threads: CUDA makes a context on a thread's current device at
/// almost any call, whatever stream or event it is about.
class Context {
 public:
  /// Of the current device.
  explicit Context(DeviceId gpu) {
    using GetCurrent = CUresult(CUcontext*);
    CUresult result = CUDA_ERROR_NOT_INITIALIZED;
    if (const auto get_current = entry<GetCurrent>(gpu, "cuCtxGetCurrent")) result = get_current(&context_);
    push_ = entry<CUresult(CUcontext)>(gpu, "cuCtxPushCurrent");
    pop_ = entry<CUresult(CUcontext*)>(gpu, "cuCtxPopCurrent");
    if (result != CUDA_SUCCESS || !push_ || !pop_)
      throw Error(Category::device_error,
                  fmt::format("GPU {}: the CUDA driver does not give its context", gpu.ordinal));
  }

  void push() const noexcept { push_(context_); }
  void pop() const noexcept {
    CUcontext popped;
    pop_(&popped);
  }

 private:
  template <typename Function>
  static Function* entry(DeviceId gpu, const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    call<DriverEntryOp>(gpu, [&] {
      return cudaGetDriverEntryPointByVersion(name, &function, entries_of_version, cudaEnableDefault, &found);
    });
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(function) : nullptr;
  }
  // Since when these three functions are as they are.
  static constexpr unsigned entries_of_version = 12000;

  CUcontext context_ = nullptr;
  CUresult (*push_)(CUcontext) = nullptr;
  CUresult (*pop_)(CUcontext*) = nullptr;
};

/// What the program's threads are while they are in our code: on the GPU, and free to make calls that a trainer's
/// capture of a graph on another thread would forbid them. Afterwards they are what they were.
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
  /// The stream waits. Nothing to wait for, where it was never recorded.
  void wait_on(cudaStream_t stream) const {
    call<StreamWaitOp>(gpu_, [&] { return cudaStreamWaitEvent(stream, event_, 0); });
  }
  /// The host waits.
  void wait() const {
    call<EventSynchronizeOp>(gpu_, [&] { return cudaEventSynchronize(event_); });
  }

 private:
  const DeviceId gpu_;
  cudaEvent_t event_ = nullptr;
};

class CudaStream {
 public:
  explicit CudaStream(DeviceId gpu) {
    call<StreamCreateOp>(gpu, [&] { return cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); });
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
