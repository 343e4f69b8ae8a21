// gpu/queue.h on CUDA.
#include <deque>
#include <memory>
#include <optional>

#include "gpu/cuda_handles.h"
#include "gpu/cuda_launch.h"
#include "gpu/device_ring.h"
#include "gpu/queue.h"

namespace feedline::gpu {
namespace {

// What waits for it is given to a stream at once, so one event does for all that come after.
class Mark {
 public:
  explicit Mark(DeviceId gpu) : event_(gpu, cudaEventDisableTiming | cudaEventBlockingSync) {}
  void pass(cudaStream_t from, cudaStream_t to) {
    event_.record(from);
    event_.wait_on(to);
  }
  void wait_for(cudaStream_t stream) {
    event_.record(stream);
    event_.wait();
  }

 private:
  CudaEvent event_;
};

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
    const Visit visit(*context_);
    made_.reset();
  }

  DeviceId device() const noexcept override { return gpu_; }
  Stream stream() const noexcept override { return Stream::cuda(made_->stream.get()); }
  std::byte* allocate(size_t bytes) override {
    const Visit visit(*context_);
    return made_->memory.emplace_back(gpu_, bytes).get();
  }

  void copy(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return;
    const Visit visit(*context_);
    call<MemcpyOp>(gpu_, [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, made_->stream.get()); });
  }
  void reduce(const ReduceLaunch& launch) override {
    const Visit visit(*context_);
    call<LaunchOp>(gpu_, [&] { return launch_reduce(launch, made_->stream.get()); });
  }
  void divide(const DivideLaunch& launch) override {
    const Visit visit(*context_);
    call<LaunchOp>(gpu_, [&] { return launch_divide(launch, made_->stream.get()); });
  }

  void follow(Stream stream) override {
    check_device(gpu_, stream);
    const Visit visit(*context_);
    check_no_capture(gpu_, stream.cuda_stream(), step);
    made_->followed.pass(stream.cuda_stream(), made_->stream.get());
  }
  void lead(Stream stream) override {
    check_device(gpu_, stream);
    const Visit visit(*context_);
    check_no_capture(gpu_, stream.cuda_stream(), step);
    made_->led.pass(made_->stream.get(), stream.cuda_stream());
  }
  void drain(Stream stream) noexcept override {
    const Visit visit(*context_);
    cudaStreamSynchronize(stream.cuda_stream());
  }
  void wait() override {
    const Visit visit(*context_);
    made_->awaited.wait_for(made_->stream.get());
  }

 private:
  static constexpr const char* step = "the step of a training";

  // What is given back while the GPU's context is the current one.
  struct Made {
    explicit Made(DeviceId gpu) : followed(gpu), led(gpu), awaited(gpu), stream(gpu) {
      call<LoadOp>(gpu, [] { return load_reduce(); });
      call<LoadOp>(gpu, [] { return load_divide(); });
    }
    std::deque<CudaMemory> memory;  // freed when the stream has ended
    Mark followed, led, awaited;
    CudaStream stream;
  };
  const DeviceId gpu_;
  std::optional<Context> context_;
  std::unique_ptr<Made> made_;
};

}  // namespace

std::shared_ptr<Queue> cuda_queue(DeviceId gpu) { return std::make_shared<CudaQueue>(gpu); }

}  // namespace feedline::gpu
