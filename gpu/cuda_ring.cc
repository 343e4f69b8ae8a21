// gpu/device_ring.h on CUDA.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/syscall_hooks.h"
#include "base/thread.h"
#include "feedline/error.h"
#include "gpu/cuda_launch.h"
#include "gpu/device_ring.h"

namespace feedline {
namespace gpu {
namespace {

// The calls that tests let fail, each with the error that a GPU which has failed answers everything with.
#define FEEDLINE_CUDA_CALL(OP, NAME)                     \
  struct OP {                                            \
    static constexpr const char* name = #NAME;           \
    static constexpr int error = cudaErrorLaunchFailure; \
  }
FEEDLINE_CUDA_CALL(SetDeviceOp, cudaSetDevice);
FEEDLINE_CUDA_CALL(CaptureModeOp, cudaThreadExchangeStreamCaptureMode);
FEEDLINE_CUDA_CALL(MallocOp, cudaMalloc);
FEEDLINE_CUDA_CALL(HostRegisterOp, cudaHostRegister);
FEEDLINE_CUDA_CALL(StreamCreateOp, cudaStreamCreateWithFlags);
FEEDLINE_CUDA_CALL(EventCreateOp, cudaEventCreateWithFlags);
FEEDLINE_CUDA_CALL(MemcpyOp, cudaMemcpyAsync);
FEEDLINE_CUDA_CALL(LaunchOp, cudaLaunchKernel);
FEEDLINE_CUDA_CALL(EventRecordOp, cudaEventRecord);
FEEDLINE_CUDA_CALL(StreamWaitOp, cudaStreamWaitEvent);
FEEDLINE_CUDA_CALL(EventSynchronizeOp, cudaEventSynchronize);
FEEDLINE_CUDA_CALL(ElapsedTimeOp, cudaEventElapsedTime);
#undef FEEDLINE_CUDA_CALL

template <typename Op, typename Call>
cudaError_t try_call(Call&& call) noexcept {
  if (const int error = injected<Op>()) return static_cast<cudaError_t>(error);
  const cudaError_t error = call();
  if (error != cudaSuccess) cudaGetLastError();  // else the next call that looks would report it again
  return error;
}

const char* advice(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "; set memory.device_limit, or a smaller parallelism.device_prefetch";
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorCapturedEvent:
      return "; call next(), ready_on() and release_on() outside of a stream's capture, and fill what a graph reads "
             "with next_into()";
    case cudaErrorInvalidResourceHandle:
      return "; a stream must outlive the batches that are used on it, and be one of the batch's GPU";
    default:
      return "; what a GPU is asked for after a failure fails, too: start the process anew";
  }
}

Error failure(DeviceId gpu, const char* call, cudaError_t error) {
  return Error(Category::device_error, fmt::format("GPU {}: {}: {} ({}){}", gpu.ordinal, call,
                                                   cudaGetErrorString(error), cudaGetErrorName(error), advice(error)));
}

template <typename Op, typename Call>
void call(DeviceId gpu, Call&& body) {
  if (const cudaError_t error = try_call<Op>(body); error != cudaSuccess) throw failure(gpu, Op::name, error);
}

// A trainer may capture graphs in the meantime: then calls like cudaMalloc are forbidden to threads that do not say
// this.
void enter(DeviceId gpu) {
  call<SetDeviceOp>(gpu, [&] { return cudaSetDevice(gpu.ordinal); });
  call<CaptureModeOp>(gpu, [] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    return cudaThreadExchangeStreamCaptureMode(&mode);
  });
}

// On a thread of its own: the caller's current device stays what it is, and cannot be asked for without making a
// context on it.
template <typename Body>
void on_gpu(DeviceId gpu, Body&& body) {
  std::exception_ptr failed;
  start_thread("feedline-gpu", [&] {
    try {
      enter(gpu);
      body();
    } catch (...) {
      failed = std::current_exception();
    }
  }).join();
  if (failed) std::rethrow_exception(failed);
}

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

constexpr unsigned untimed = cudaEventDisableTiming | cudaEventBlockingSync;

class Buffer final : public StreamOrder {
 public:
  explicit Buffer(DeviceId gpu)
      : gpu_(gpu),
        begun_(gpu, cudaEventDefault),
        copied_(gpu, cudaEventBlockingSync),
        ready_(gpu, untimed),
        released_(gpu, untimed) {}
  ~Buffer() { cudaEventSynchronize(released_.get()); }

  void ready_on(Stream stream) override {
    check_device(stream);
    if (stream.kind() == DeviceId::Kind::host)
      ready_.wait();
    else
      ready_.wait_on(stream.cuda_stream());
    ready_on_ = stream;
  }

  void copy_on(Stream stream, void* to, const void* from, size_t bytes) override {
    if (stream.kind() == DeviceId::Kind::host)
      throw Error(Category::bad_pipeline, "a batch of a GPU is copied on a stream of that GPU, not on Stream::host");
    call<MemcpyOp>(gpu_,
                   [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.cuda_stream()); });
  }

  void release_on(Stream stream) noexcept override {
    ready_on_.reset();
    if (stream.kind() == DeviceId::Kind::host) return;
    try {
      check_device(stream);
      released_.record(stream.cuda_stream());
    } catch (...) {
      not_released_ = std::current_exception();
    }
  }

  void let_go() noexcept override {
    if (ready_on_) release_on(*ready_on_);
  }

  void fill(cudaStream_t copy, cudaStream_t unpack, std::span<const CopyToDevice> copies,
            std::span<const UnpackLaunch> launches) {
    if (not_released_) std::rethrow_exception(not_released_);
    released_.wait_on(copy);
    ready_.wait_on(copy);  // nobody may have used it
    begun_.record(copy);
    for (const CopyToDevice& part : copies)
      call<MemcpyOp>(gpu_, [&] {
        return cudaMemcpyAsync(part.to, part.from.data(), part.from.size(), cudaMemcpyHostToDevice, copy);
      });
    copied_.record(copy);
    copied_.wait_on(unpack);
    for (const UnpackLaunch& launch : launches) call<LaunchOp>(gpu_, [&] { return launch_unpack(launch, unpack); });
    ready_.record(unpack);
  }

  double finish_copy() const {
    copied_.wait();
    float milliseconds = 0;
    call<ElapsedTimeOp>(gpu_, [&] { return cudaEventElapsedTime(&milliseconds, begun_.get(), copied_.get()); });
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  // The default streams are those of the current device.
  void check_device(Stream stream) const {
    if (stream != Stream::cuda_legacy && stream != Stream::cuda_per_thread) return;
    int current = -1;
    if (cudaGetDevice(&current) == cudaSuccess && current == gpu_.ordinal) return;
    throw Error(Category::bad_pipeline, fmt::format("a default stream is that of the thread's current device, GPU {}; "
                                                    "the batch is on GPU {}: call cudaSetDevice({}) before",
                                                    current, gpu_.ordinal, gpu_.ordinal));
  }

  const DeviceId gpu_;
  CudaEvent begun_, copied_, ready_, released_;
  std::optional<Stream> ready_on_;
  std::exception_ptr not_released_;
};

class CudaRing final : public DeviceRing {
 public:
  CudaRing(DeviceId gpu, size_t buffers, size_t buffer_bytes, std::span<const std::byte> tables) : gpu_(gpu) {
    on_gpu(gpu, [&] { resources_ = std::make_unique<Resources>(gpu, buffers, buffer_bytes, tables); });
  }
  ~CudaRing() override {
    try {
      on_gpu(gpu_, [&] { resources_.reset(); });
    } catch (const std::exception& error) {
      logger()->warn("memory of GPU {} is not given back: {}", gpu_.ordinal, error.what());
      static_cast<void>(resources_.release());
    }
  }

  std::byte* memory() const noexcept override { return resources_->memory.get(); }
  const std::byte* tables() const noexcept override { return resources_->tables.get(); }
  StreamOrder& order(size_t buffer) noexcept override { return resources_->buffers[buffer]; }
  void enter_thread() override { enter(gpu_); }
  void fill(size_t buffer, std::span<const CopyToDevice> copies, std::span<const UnpackLaunch> launches) override {
    resources_->buffers[buffer].fill(resources_->copy.get(), resources_->unpack.get(), copies, launches);
  }
  double finish_copy(size_t buffer) override { return resources_->buffers[buffer].finish_copy(); }
  void drain() noexcept override { cudaStreamSynchronize(resources_->copy.get()); }

 private:
  struct Resources {
    Resources(DeviceId gpu, size_t count, size_t buffer_bytes, std::span<const std::byte> host_tables)
        : memory(gpu, count * buffer_bytes), tables(gpu, host_tables.size()), copy(gpu), unpack(gpu) {
      if (!host_tables.empty())
        call<MemcpyOp>(gpu, [&] {
          return cudaMemcpy(tables.get(), host_tables.data(), host_tables.size(), cudaMemcpyHostToDevice);
        });
      for (size_t i = 0; i < count; i++) buffers.emplace_back(gpu);
    }
    CudaMemory memory, tables;  // freed when the streams have ended
    CudaStream copy, unpack;
    std::deque<Buffer> buffers;
  };
  const DeviceId gpu_;
  std::unique_ptr<Resources> resources_;
};

}  // namespace

std::shared_ptr<DeviceRing> open_device_ring(DeviceId gpu, size_t buffers, size_t buffer_bytes,
                                             std::span<const std::byte> tables) {
  const Gpus gpus = visible_gpus();
  if (gpu.ordinal < 0 || gpu.ordinal >= gpus.count)
    throw Error(Category::device_error, gpus.count == 0
                                            ? fmt::format("there is no GPU {}: {}", gpu.ordinal, gpus.why)
                                            : fmt::format("there is no GPU {}: this process sees {}, numbered from 0",
                                                          gpu.ordinal, gpus.count));
  return std::make_shared<CudaRing>(gpu, buffers, buffer_bytes, tables);
}

bool pin(std::span<std::byte> memory, DeviceId gpu) {
  cudaError_t error = cudaSuccess;
  on_gpu(gpu, [&] {
    error = try_call<HostRegisterOp>(
        [&] { return cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable); });
  });
  if (error == cudaSuccess) return true;
  logger()->warn("memory cannot be pinned for GPUs ({}): copies to them are slower", cudaGetErrorString(error));
  return false;
}

void unpin(std::span<std::byte> memory, DeviceId gpu) noexcept {
  try {
    on_gpu(gpu, [&] { cudaHostUnregister(memory.data()); });
  } catch (const std::exception&) {
    // A driver that is gone has nothing pinned.
  }
}

}  // namespace gpu

Gpus visible_gpus() {
  Gpus gpus;
  switch (const cudaError_t error = cudaGetDeviceCount(&gpus.count)) {
    case cudaSuccess:
      if (gpus.count == 0) gpus.why = "the CUDA driver finds no GPU";
      return gpus;
    case cudaErrorInsufficientDriver:
      gpus.why = "the system has no CUDA driver, or one that is older than what feedline was built with";
      break;
    case cudaErrorNoDevice:
      gpus.why = "the CUDA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide them)";
      break;
    default:
      gpus.why = fmt::format("CUDA does not start: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
  }
  cudaGetLastError();
  gpus.count = 0;
  return gpus;
}

}  // namespace feedline
