// Implements gpu/device/queue.h with CUDA.
#include <deque>
#include <memory>
#include <optional>

#include "gpu/cuda/cuda_handles.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/gpu_model.h"
#include "gpu/device/queue.h"

namespace feedline::gpu {
namespace {

class CudaQueue final : public Queue {
 public:
  explicit CudaQueue(DeviceId gpu) : gpu_(gpu) {
    check_devices({&gpu, 1});
    on_gpu(gpu_, [&] {
      context_.emplace(gpu_);
      made_ = std::make_unique<Made>(gpu_);
    });
  }
  ~CudaQueue() override {
    const ScopedContext scoped(*context_);
    made_.reset();
  }

  DeviceId device() const noexcept override { return gpu_; }
  Stream stream() const noexcept override { return Stream::cuda(made_->stream.get()); }
  std::byte* allocate(size_t bytes) override {
    const ScopedContext scoped(*context_);
    return made_->memory.emplace_back(gpu_, bytes).get();
  }

  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    const ScopedContext scoped(*context_);
    call<MemcpyOp>(gpu_, [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, made_->stream.get()); });
  }
  void copy(std::span<const CopyPart> parts) override {
    const ScopedContext scoped(*context_);
    while (!parts.empty()) {
      const CopyArgs copies = take_copies(parts);
      if (copies.blocks() > 0) call<LaunchOp>(gpu_, [&] { return launch_copy(copies, made_->stream.get()); });
    }
  }
  void reduce(const ReduceLaunch& launch) override {
    const ScopedContext scoped(*context_);
    call<LaunchOp>(gpu_, [&] { return launch_reduce(launch, made_->stream.get()); });
  }
  void divide(const DivideLaunch& launch) override {
    const ScopedContext scoped(*context_);
    call<LaunchOp>(gpu_, [&] { return launch_divide(launch, made_->stream.get()); });
  }

  void enter_thread() override { enter(gpu_); }

  // All calls of follow() can use one event, because each gives the wait for it to the queue's stream before the next
  // call records the event again.
  void follow(Stream stream) override {
    record(made_->followed, stream);
    const ScopedContext scoped(*context_);
    made_->followed.wait_on(made_->stream.get());
  }
  void make_marks(size_t count) override {
    const ScopedContext scoped(*context_);
    while (made_->marks.size() < count) made_->marks.emplace_back(gpu_, untimed);
  }
  void mark(size_t number, Stream stream) override { record(made_->marks[number], stream); }
  void follow_mark(size_t number) override {
    const ScopedContext scoped(*context_);
    made_->marks[number].wait_on(made_->stream.get());
  }
  void lead(Stream stream) override {
    check_device(gpu_, stream);
    const ScopedContext scoped(*context_);
    check_no_capture(gpu_, stream.cuda_stream(), step);
    made_->led.record(made_->stream.get());
    made_->led.wait_on(stream.cuda_stream());
  }
  void drain(Stream stream) noexcept override {
    const ScopedContext scoped(*context_);
    cudaStreamSynchronize(stream.cuda_stream());
  }
  void wait() override {
    const ScopedContext scoped(*context_);
    made_->awaited.record(made_->stream.get());
    made_->awaited.wait();
  }

 private:
  static constexpr const char* step = "the step of a training";

  void record(CudaEvent& event, Stream stream) {
    check_device(gpu_, stream);
    const ScopedContext scoped(*context_);
    check_no_capture(gpu_, stream.cuda_stream(), step);
    event.record(stream.cuda_stream());
  }

  // The objects that must be destroyed while the GPU's context is the current one.
  struct Made {
    explicit Made(DeviceId gpu) : followed(gpu, untimed), led(gpu, untimed), awaited(gpu, untimed), stream(gpu) {
      check_kernels(gpu);
      call<LoadOp>(gpu, [] { return load_reduce(); });
      call<LoadOp>(gpu, [] { return load_divide(); });
      call<LoadOp>(gpu, [] { return load_copy(); });
    }
    std::deque<CudaMemory> memory;  // declared before `stream`, so that it is freed after the stream has ended
    CudaEvent followed, led, awaited;
    std::deque<CudaEvent> marks;
    CudaStream stream;
  };
  const DeviceId gpu_;
  std::optional<Context> context_;
  std::unique_ptr<Made> made_;
};

}  // namespace

std::shared_ptr<Queue> cuda_queue(DeviceId gpu) { return std::make_shared<CudaQueue>(gpu); }

}  // namespace feedline::gpu
