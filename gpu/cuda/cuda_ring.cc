// Implements gpu/device/device_ring.h with CUDA.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "base/leak.h"
#include "base/log.h"
#include "gpu/cuda/cuda_copy.h"
#include "gpu/cuda/cuda_handles.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/cuda/cuda_peer.h"
#include "gpu/cuda/cuda_users.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/gpu_model.h"
#include "gpu/device/kept_memory.h"

namespace feedline::gpu {
namespace {

// The events of one fill(). They are not members of Buffer, because the buffer may be filled again before the host has
// read them.
struct CopyEvents {
  explicit CopyEvents(DeviceId gpu) : begun(gpu, cudaEventDefault), copied(gpu, cudaEventBlockingSync) {}
  CudaEvent begun, copied;
};

// One buffer of the ring. The program's threads call the functions of StreamOrder, which therefore use a ScopedContext.
class Buffer final : public StreamOrder {
 public:
  Buffer(DeviceId gpu, const Context& context) : gpu_(gpu), context_(context), ready_(gpu, untimed) {
    released_.emplace_back(gpu, untimed);
  }
  ~Buffer() {
    for (const CudaEvent& released : released_) cudaEventSynchronize(released.get());
  }

  void ready_on(Stream stream) override {
    check_device(gpu_, stream);
    const ScopedContext scoped(context_);
    if (stream.kind() == DeviceId::Kind::host)
      ready_.wait();
    else
      ready_.wait_on(stream.cuda_stream());
    users_.add(stream);
  }

  void copy_on(Stream stream, void* to, const void* from, size_t bytes) override {
    gpu::copy_on(gpu_, context_, stream, to, from, bytes);
  }
  std::shared_ptr<OwnMemory> copy(std::span<const CopyWithin> parts, size_t bytes) override {
    return copy_on_gpu(gpu_, context_, &ready_, parts, bytes);
  }

  void release_on(Stream stream) noexcept override {
    users_.clear();
    remember_failure([&] {
      check_device(gpu_, stream);
      if (stream.kind() == DeviceId::Kind::host) return;
      const cudaStream_t only = stream.cuda_stream();
      release(std::span(&only, 1));
    });
  }

  void let_go() noexcept override {
    remember_failure([&] { release(users_.streams()); });
    users_.clear();
  }

  // Implements DeviceRing::fill() and fill_from() on the ring's streams `copy` and `unpack`. `from` is the buffer of
  // another ring that holds the copies' sources, or null if the sources are memory of the host.
  void fill(cudaStream_t copy, cudaStream_t unpack, CopyEvents& events, Buffer* from,
            std::span<const CopyToDevice> copies, std::span<const unpack::UnpackLaunch> launches) {
    if (not_released_) std::rethrow_exception(not_released_);
    for (const CudaEvent& released : released_) released.wait_on(copy);
    ready_.wait_on(copy);  // the last content may have been released while kernels still wrote it
    if (copied_on_) copied_on_->wait_on(copy);
    if (from) from->copied_->wait_on(copy);
    events.begun.record(copy);
    for (const CopyToDevice& part : copies)
      call<MemcpyOp>(gpu_, [&] {
        return cudaMemcpyAsync(part.to, part.from.data(), part.from.size(),
                               from ? cudaMemcpyDefault : cudaMemcpyHostToDevice, copy);
      });
    events.copied.record(copy);
    copied_ = &events.copied;
    if (from) from->copied_on_ = &events.copied;
    events.copied.wait_on(unpack);
    launch_all(launches, unpack);
  }

  /// Returns whether a release has failed. In that case no event shows when a stream has finished with the memory.
  bool was_not_released() const noexcept { return not_released_ != nullptr; }

  void go_on(Stream stream, const std::function<void()>& arrive, std::span<const unpack::UnpackLaunch> launches) {
    const ScopedContext scoped(context_);
    ready_.wait_on(stream.cuda_stream());
    users_.add(stream);  // from here on the buffer belongs to the stream until let_go(), even if something fails
    arrive();
    launch_all(launches, stream.cuda_stream());
  }

 private:
  void launch_all(std::span<const unpack::UnpackLaunch> launches, cudaStream_t stream) {
    if (!launches.empty()) call<LaunchOp>(gpu_, [&] { return launch_unpack(launches, stream); });
    ready_.record(stream);
  }
  // Runs `body` and keeps what it throws, for the next fill() to throw.
  template <typename Body>
  void remember_failure(Body body) noexcept {
    try {
      body();
    } catch (...) {
      not_released_ = std::current_exception();
    }
  }
  void release(std::span<const cudaStream_t> streams) {
    if (streams.empty()) return;
    const ScopedContext scoped(context_);
    for (size_t i = 0; i < streams.size(); i++) {
      // If an event were recorded during a capture, the ring's next copy would become part of the trainer's graph.
      check_no_capture(gpu_, streams[i], "the release of a batch");
      try {
        if (i == released_.size()) released_.emplace_back(gpu_, untimed);
        released_[i].record(streams[i]);
      } catch (const Error&) {
        // No event shows when the streams have finished with the memory, so this thread waits for the streams. (The
        // failure may be that a stream belongs to a different GPU.)
        for (const cudaStream_t stream : streams) cudaStreamSynchronize(stream);
        throw;
      }
    }
  }

  const DeviceId gpu_;
  const Context& context_;
  CudaEvent ready_;
  std::deque<CudaEvent> released_;  // the first ones were recorded on the streams that used the last content
  // `copied_` was recorded after the copy of rows to this buffer, and `copied_on_` after the next GPU's copy of these
  // rows from this buffer. Each ring uses its CopyEvents in turn, so both events may have been recorded again for later
  // copies. Waiting for a later copy causes no deadlock, because everything that a copy waits for has already been
  // given to a stream.
  const CudaEvent *copied_ = nullptr, *copied_on_ = nullptr;
  CudaUsers users_;
  std::exception_ptr not_released_;
};

void log_stays_allocated(DeviceId gpu, const std::exception& why) {
  log_warning(fmt::format("memory of GPU {} stays allocated until the process ends: {}", gpu.ordinal, why.what()));
}

// Owns a block of the current device's memory, which may be a block that KeptMemory has kept for reuse.
class RingMemory {
 public:
  RingMemory(DeviceId gpu, size_t bytes) : block_{gpu, true, nullptr, bytes, free_on_gpu} {
    if (bytes == 0) return;
    block_.address = take_kept(gpu, true, bytes);
    if (!block_.address) call<MallocOp>(gpu, [&] { return cudaMalloc(&block_.address, bytes); });
  }
  ~RingMemory() {
    if (block_.address && (in_use_ || !keep(block_))) cudaFree(block_.address);
  }
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  std::byte* get() const noexcept { return static_cast<std::byte*>(block_.address); }
  /// Says that streams may still use the memory when the destructor runs. The destructor then frees the memory and does
  /// not keep it, because cudaFree() waits for the streams.
  void stays_in_use() noexcept { in_use_ = true; }

 private:
  static void free_on_gpu(const KeptBlock& block) noexcept {
    try {
      on_gpu(block.gpu, [&] { cudaFree(block.address); });
    } catch (const std::exception& error) {
      log_stays_allocated(block.gpu, error);
    }
  }

  KeptBlock block_;
  bool in_use_ = false;
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
      log_stays_allocated(gpu_, error);
      leak(std::shared_ptr<Resources>(std::move(resources_)));
    }
  }

  std::byte* memory() const noexcept override { return resources_->memory.get(); }
  const std::byte* tables() const noexcept override { return resources_->tables.get(); }
  StreamOrder& order(size_t buffer) noexcept override { return resources_->buffers[buffer]; }
  bool reaches() const noexcept override { return resources_->reaches; }
  void enter_thread() override { enter(gpu_); }

  void fill(size_t buffer, std::span<const CopyToDevice> copies,
            std::span<const unpack::UnpackLaunch> launches) override {
    fill(buffer, nullptr, copies, launches);
  }
  void fill_from(DeviceRing& other, size_t others_buffer, size_t buffer, std::span<const CopyToDevice> copies,
                 std::span<const unpack::UnpackLaunch> launches) override {
    fill(buffer, &static_cast<CudaRing&>(other).resources_->buffers[others_buffer], copies, launches);
  }
  void check(Stream stream) const override {
    if (stream.kind() == DeviceId::Kind::host || stream == Stream::cuda_per_thread)
      throw Error(Category::bad_pipeline,
                  "rows can arrive on a GPU only on a stream of that GPU that all threads share; name such a stream in "
                  "place of Stream::host or Stream::cuda_per_thread");
    check_device(gpu_, stream);
    const ScopedContext scoped(resources_->context);
    check_no_capture(gpu_, stream.cuda_stream(), "the arrival of a batch");
  }
  void go_on(size_t buffer, Stream stream, const std::function<void()>& arrive,
             std::span<const unpack::UnpackLaunch> launches) override {
    resources_->buffers[buffer].go_on(stream, arrive, launches);
  }
  double finish_copy() override {
    const ScopedContext scoped(resources_->context);
    const CopyEvents& events = resources_->copies[finished_++ % resources_->copies.size()];
    events.copied.wait();
    float milliseconds = 0;
    call<ElapsedTimeOp>(gpu_,
                        [&] { return cudaEventElapsedTime(&milliseconds, events.begun.get(), events.copied.get()); });
    return static_cast<double>(milliseconds) * 1e-3;
  }
  void drain() noexcept override {
    const ScopedContext scoped(resources_->context);
    cudaStreamSynchronize(resources_->copy.get());
  }

 private:
  void fill(size_t buffer, Buffer* from, std::span<const CopyToDevice> copies,
            std::span<const unpack::UnpackLaunch> launches) {
    const ScopedContext scoped(resources_->context);
    CopyEvents& events = resources_->copies[filled_++ % resources_->copies.size()];
    resources_->buffers[buffer].fill(resources_->copy.get(), resources_->unpack.get(), events, from, copies, launches);
  }

  struct Resources {
    explicit Resources(const DeviceRingOptions& options)
        : reads(options.reads),
          context(options.gpu),
          memory(options.gpu, options.buffers * options.buffer_bytes),
          tables(options.gpu, options.tables.size()),
          copy(options.gpu),
          unpack(options.gpu) {
      check_kernels(options.gpu);
      for (const unpack::UnpackKernel& kernel : options.kernels)
        call<LoadOp>(options.gpu, [&] { return load_unpack(kernel); });
      // The copy is not made on the default stream, which must not be used while a trainer captures a graph.
      if (!options.tables.empty())
        call<MemcpyOp>(options.gpu, [&] {
          return cudaMemcpyAsync(tables.get(), options.tables.data(), options.tables.size(), cudaMemcpyHostToDevice,
                                 unpack.get());
        });
      call<StreamSynchronizeOp>(options.gpu, [&] { return cudaStreamSynchronize(unpack.get()); });
      if (const auto& other = options.copies_from) reaches = *other == options.gpu || reach(options.gpu, *other);
      for (size_t i = 0; i < options.copies; i++) copies.emplace_back(options.gpu);
      for (size_t i = 0; i < options.buffers; i++) buffers.emplace_back(options.gpu, context);
    }
    ~Resources() {
      if (std::ranges::none_of(buffers, &Buffer::was_not_released)) return;
      memory.stays_in_use();
      tables.stays_in_use();
    }
    const std::vector<std::shared_ptr<const std::byte>> reads;
    const Context context;
    bool reaches = false;
    RingMemory memory, tables;  // declared before the streams, so that they are freed after the streams have ended
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
  return std::make_shared<CudaRing>(options);
}

}  // namespace feedline::gpu
