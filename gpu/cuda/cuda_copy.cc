#include "gpu/cuda/cuda_copy.h"

#include <fmt/format.h>

#include <optional>

#include "base/log.h"
#include "gpu/cuda/cuda_users.h"

namespace feedline::gpu {
namespace {

// A copy of a batch. Its memory is allocated and freed in the order of streams, not by cudaFree(). The Python
// interpreter frees tensors while it holds its global lock. cudaFree() would then wait for all work of the GPU, and
// some of that work may wait for this lock.
class Copy final : public OwnMemory {
 public:
  Copy(DeviceId gpu, const Context& context, const CudaEvent* written, std::span<const CopyWithin> parts, size_t bytes)
      : Copy(gpu, context) {  // from here on the destructor runs, whatever is thrown
    const ScopedContext scoped(context_);
    const CudaStream stream(gpu);
    if (written) written->wait_on(stream.get());
    call<MallocAsyncOp>(gpu, [&] { return cudaMallocAsync(&memory_, bytes, stream.get()); });
    for (const CopyWithin& part : parts)
      call<MemcpyOp>(gpu, [&] {
        return cudaMemcpyAsync(memory() + part.to, part.from, part.bytes, cudaMemcpyDeviceToDevice, stream.get());
      });
    call<StreamSynchronizeOp>(gpu, [&] { return cudaStreamSynchronize(stream.get()); });
  }
  ~Copy() override { let_go(); }

  std::byte* memory() const noexcept override { return static_cast<std::byte*>(memory_); }

  void ready_on(Stream stream) override {
    check_device(gpu_, stream);
    users_.add(stream);
  }
  void copy_on(Stream stream, void* to, const void* from, size_t bytes) override {
    gpu::copy_on(gpu_, context_, stream, to, from, bytes);
  }
  std::shared_ptr<OwnMemory> copy(std::span<const CopyWithin> parts, size_t bytes) override {
    return copy_on_gpu(gpu_, context_, nullptr, parts, bytes);
  }
  void release_on(Stream stream) noexcept override {
    users_.clear();
    users_.add(stream);
  }
  void let_go() noexcept override {
    if (!memory_) return;
    try {
      const ScopedContext scoped(context_);
      free_after(users_.streams());
    } catch (const Error& error) {
      log_warning(fmt::format("the memory of a copied batch on GPU {} stays allocated until the process ends: {}",
                              gpu_.ordinal, error.what()));
    }
    memory_ = nullptr;
  }

 private:
  Copy(DeviceId gpu, const Context& context) : gpu_(gpu), context_(context) {}

  // Lets the memory be freed when these streams have done the work that they have been given so far.
  void free_after(std::span<const cudaStream_t> streams) {
    std::optional<CudaStream> own;
    const cudaStream_t last = streams.empty() ? own.emplace(gpu_).get() : streams.back();
    for (const cudaStream_t stream : streams) {
      check_no_capture(gpu_, stream, "the release of a batch");
      if (stream == last) break;
      CudaEvent used(gpu_, untimed);
      used.record(stream);
      used.wait_on(last);
    }
    call<FreeAsyncOp>(gpu_, [&] { return cudaFreeAsync(memory_, last); });
  }

  const DeviceId gpu_;
  const Context context_;
  void* memory_ = nullptr;
  CudaUsers users_;
};

}  // namespace

std::shared_ptr<OwnMemory> copy_on_gpu(DeviceId gpu, const Context& context, const CudaEvent* written,
                                       std::span<const CopyWithin> parts, size_t bytes) {
  return std::make_shared<Copy>(gpu, context, written, parts, bytes);
}

}  // namespace feedline::gpu
