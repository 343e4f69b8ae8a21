// gpu/device_ring.h on CUDA.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <deque>
#include <exception>
#include <optional>
#include <system_error>
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
FEEDLINE_CUDA_CALL(DriverEntryOp, cudaGetDriverEntryPointByVersion);
FEEDLINE_CUDA_CALL(MallocOp, cudaMalloc);
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
    case cudaErrorNoKernelImageForDevice:
      return "; feedline was built for other GPUs: set -Dgpu_archs";
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

// On a thread of its own: the caller's current device stays what it is. To put it back would make a context on it.
template <typename Body>
void on_gpu(DeviceId gpu, Body&& body) {
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

// The context of a GPU, for calls on the program's own threads: CUDA makes a context on a thread's current device at
// almost any call, whatever stream or event it is about.
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

  class Pushed {
   public:
    explicit Pushed(const Context& context) noexcept : context_(context) { context.push_(context.context_); }
    ~Pushed() {
      CUcontext popped;
      context_.pop_(&popped);
    }
    Pushed(const Pushed&) = delete;
    Pushed& operator=(const Pushed&) = delete;

   private:
    const Context& context_;
  };

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

// Of one fill(), so that it does not matter how soon its buffer is filled again.
struct CopyEvents {
  explicit CopyEvents(DeviceId gpu) : begun(gpu, cudaEventDefault), copied(gpu, cudaEventBlockingSync) {}
  CudaEvent begun, copied;
};

// What a batch calls is called on the program's threads.
class Buffer final : public StreamOrder {
 public:
  Buffer(DeviceId gpu, const Context& context)
      : gpu_(gpu), context_(context), ready_(gpu, untimed), released_(gpu, untimed) {}
  ~Buffer() { cudaEventSynchronize(released_.get()); }

  void ready_on(Stream stream) override {
    check_device(stream);
    const Context::Pushed pushed(context_);
    if (stream.kind() == DeviceId::Kind::host)
      ready_.wait();
    else
      ready_.wait_on(stream.cuda_stream());
    ready_on_ = stream;
  }

  void copy_on(Stream stream, void* to, const void* from, size_t bytes) override {
    if (stream.kind() == DeviceId::Kind::host)
      throw Error(Category::bad_pipeline, "a batch of a GPU is copied on a stream of that GPU, not on Stream::host");
    check_device(stream);
    const Context::Pushed pushed(context_);
    call<MemcpyOp>(gpu_,
                   [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.cuda_stream()); });
  }

  void release_on(Stream stream) noexcept override {
    try {
      check_device(stream);
      release(stream);
    } catch (...) {
      not_released_ = std::current_exception();
    }
  }

  // On whatever thread: of its default streams none is meant. CUDA's legacy stream waits for the others'.
  void let_go() noexcept override {
    if (!ready_on_) return;
    try {
      release(is_default(*ready_on_) ? Stream::cuda_legacy : *ready_on_);
    } catch (...) {
      not_released_ = std::current_exception();
    }
  }

  void fill(cudaStream_t copy, cudaStream_t unpack, CopyEvents& events, std::span<const CopyToDevice> copies,
            std::span<const UnpackLaunch> launches) {
    if (not_released_) std::rethrow_exception(not_released_);
    released_.wait_on(copy);
    ready_.wait_on(copy);  // nobody may have used it
    events.begun.record(copy);
    for (const CopyToDevice& part : copies)
      call<MemcpyOp>(gpu_, [&] {
        return cudaMemcpyAsync(part.to, part.from.data(), part.from.size(), cudaMemcpyHostToDevice, copy);
      });
    events.copied.record(copy);
    events.copied.wait_on(unpack);
    for (const UnpackLaunch& launch : launches) call<LaunchOp>(gpu_, [&] { return launch_unpack(launch, unpack); });
    ready_.record(unpack);
  }

 private:
  static bool is_default(Stream stream) { return stream == Stream::cuda_legacy || stream == Stream::cuda_per_thread; }

  // The default streams are those of the current device.
  void check_device(Stream stream) const {
    if (!is_default(stream)) return;
    int current = -1;
    if (cudaGetDevice(&current) == cudaSuccess && current == gpu_.ordinal) return;
    throw Error(Category::bad_pipeline, fmt::format("a default stream is that of the thread's current device, GPU {}; "
                                                    "the batch is on GPU {}: call cudaSetDevice({}) before",
                                                    current, gpu_.ordinal, gpu_.ordinal));
  }

  void release(Stream stream) {
    ready_on_.reset();
    if (stream.kind() == DeviceId::Kind::host) return;
    const Context::Pushed pushed(context_);
    // An event that is captured would take our next copy into the trainer's graph.
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    call<IsCapturingOp>(gpu_, [&] { return cudaStreamIsCapturing(stream.cuda_stream(), &capture); });
    if (capture != cudaStreamCaptureStatusNone)
      throw failure(gpu_, "the release of a batch", cudaErrorStreamCaptureUnsupported);
    released_.record(stream.cuda_stream());
  }

  const DeviceId gpu_;
  const Context& context_;
  CudaEvent ready_, released_;
  std::optional<Stream> ready_on_;
  std::exception_ptr not_released_;
};

class CudaRing final : public DeviceRing {
 public:
  explicit CudaRing(const DeviceRingOptions& options) : gpu_(options.gpu) {
    on_gpu(gpu_, [&] { resources_ = std::make_unique<Resources>(options); });
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
    CopyEvents& events = resources_->copies[filled_++ % resources_->copies.size()];
    resources_->buffers[buffer].fill(resources_->copy.get(), resources_->unpack.get(), events, copies, launches);
  }
  double finish_copy() override {
    const CopyEvents& events = resources_->copies[finished_++ % resources_->copies.size()];
    events.copied.wait();
    float milliseconds = 0;
    call<ElapsedTimeOp>(gpu_,
                        [&] { return cudaEventElapsedTime(&milliseconds, events.begun.get(), events.copied.get()); });
    return static_cast<double>(milliseconds) * 1e-3;
  }
  void drain() noexcept override {
    const Context::Pushed pushed(resources_->context);
    cudaStreamSynchronize(resources_->copy.get());
  }

 private:
  struct Resources {
    explicit Resources(const DeviceRingOptions& options)
        : context(options.gpu),
          memory(options.gpu, options.buffers * options.buffer_bytes),
          tables(options.gpu, options.tables.size()),
          copy(options.gpu),
          unpack(options.gpu) {
      for (const UnpackKernel& kernel : options.kernels) call<LoadOp>(options.gpu, [&] { return load_unpack(kernel); });
      // Not on the default stream, which may not be used while a trainer captures.
      if (!options.tables.empty())
        call<MemcpyOp>(options.gpu, [&] {
          return cudaMemcpyAsync(tables.get(), options.tables.data(), options.tables.size(), cudaMemcpyHostToDevice,
                                 unpack.get());
        });
      call<StreamSynchronizeOp>(options.gpu, [&] { return cudaStreamSynchronize(unpack.get()); });
      for (size_t i = 0; i < options.copies; i++) copies.emplace_back(options.gpu);
      for (size_t i = 0; i < options.buffers; i++) buffers.emplace_back(options.gpu, context);
    }
    const Context context;
    CudaMemory memory, tables;  // freed when the streams have ended
    CudaStream copy, unpack;
    std::deque<CopyEvents> copies;
    std::deque<Buffer> buffers;
  };
  const DeviceId gpu_;
  std::unique_ptr<Resources> resources_;
  size_t filled_ = 0, finished_ = 0;
};

}  // namespace

std::shared_ptr<DeviceRing> open_device_ring(const DeviceRingOptions& options) {
  check_devices({&options.gpu, 1});
  return std::make_shared<CudaRing>(options);
}

bool pin(std::span<std::byte> memory, DeviceId gpu) noexcept {
  try {
    on_gpu(gpu, [&] {
      call<HostRegisterOp>(gpu,
                           [&] { return cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable); });
    });
    return true;
  } catch (const std::exception& error) {
    logger()->warn("memory cannot be pinned, copies to GPUs are slower: {}", error.what());
    return false;
  }
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
