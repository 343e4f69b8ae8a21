// A communicator between GPUs for tests whose data is in host memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "feedline/communicator.h"
#include "support/device_buffer.h"

namespace feedline::test {

/// Copies the buffers of each call to the GPU and back. Calls alternate between a CUDA stream and Stream::host.
class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(std::unique_ptr<Communicator> on_gpu, DeviceId gpu) : on_gpu_(std::move(on_gpu)) {
    require(cudaSetDevice(gpu.ordinal));
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~StagedCommunicator() override {
    on_gpu_.reset();
    cudaStreamDestroy(stream_);
  }

  int rank() const noexcept override { return on_gpu_->rank(); }
  int size() const noexcept override { return on_gpu_->size(); }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Stream) override {
    Staged there(*this, all);
    const bool in_place = !mine.empty() && mine.data() >= all.data() && mine.data() < all.data() + all.size();
    const std::optional<Staged> own = in_place ? std::nullopt : std::optional<Staged>(std::in_place, *this, mine);
    on_gpu_->all_gather(
        in_place ? there.bytes().subspan(static_cast<size_t>(mine.data() - all.data()), mine.size()) : own->bytes(),
        there.bytes(), next_stream());
    there.fetch(all);
  }
  void broadcast(std::span<std::byte> data, int root, Stream) override {
    Staged there(*this, data);
    on_gpu_->broadcast(there.bytes(), root, next_stream());
    there.fetch(data);
  }
  void all_reduce(TensorView data, Reduction reduction, Stream) override {
    Staged there(*this, bytes_of(data));
    on_gpu_->all_reduce({there.bytes().data(), data.dtype, data.shape}, reduction, next_stream());
    there.fetch(bytes_of(data));
  }
  void announce(std::span<const AllReduce> calls) override { on_gpu_->announce(calls); }
  void reduce_scatter(TensorView data, TensorView mine, Reduction reduction, Stream) override {
    Staged all(*this, bytes_of(data)), part(*this, bytes_of(mine));
    on_gpu_->reduce_scatter({all.bytes().data(), data.dtype, data.shape}, {part.bytes().data(), mine.dtype, mine.shape},
                            reduction, next_stream());
    all.fetch(bytes_of(data));
    part.fetch(bytes_of(mine));
  }
  void send_receive(std::span<const Part> sends, std::span<const Part> receives, Stream) override {
    std::vector<std::unique_ptr<Staged>> staged;
    std::vector<Part> there;
    for (const auto parts : {sends, receives})
      for (const Part& part : parts)
        there.push_back({part.rank, staged.emplace_back(std::make_unique<Staged>(*this, part.bytes))->bytes()});
    const std::span<const Part> all = there;
    on_gpu_->send_receive(all.first(sends.size()), all.subspan(sends.size()), next_stream());
    for (size_t i = 0; i < receives.size(); i++) staged[sends.size() + i]->fetch(receives[i].bytes);
  }
  void barrier() override { on_gpu_->barrier(); }
  void abort(const Error& why) noexcept override { on_gpu_->abort(why); }
  std::optional<Error> failure() const override { return on_gpu_->failure(); }

 private:
  class Staged {
   public:
    Staged(const StagedCommunicator& owner, std::span<const std::byte> from)
        : stream_(owner.stream_), size_(from.size()), buffer_(from.size()) {
      if (size_ > 0) require(cudaMemcpyAsync(buffer_.data(), from.data(), size_, cudaMemcpyHostToDevice, stream_));
      require(cudaStreamSynchronize(stream_));  // the call may use Stream::host, which does not wait for stream_
    }
    std::span<std::byte> bytes() const { return {buffer_.bytes(), size_}; }
    void fetch(std::span<std::byte> to) const {
      if (size_ > 0) require(cudaMemcpyAsync(to.data(), buffer_.data(), size_, cudaMemcpyDeviceToHost, stream_));
      require(cudaStreamSynchronize(stream_));
    }

   private:
    cudaStream_t stream_;
    size_t size_;
    DeviceBuffer buffer_;
  };
  static std::span<std::byte> bytes_of(const TensorView& tensor) {
    return {static_cast<std::byte*>(tensor.data), tensor.size_bytes()};
  }
  Stream next_stream() { return calls_++ % 2 == 0 ? Stream::cuda(stream_) : Stream::host; }

  std::unique_ptr<Communicator> on_gpu_;
  cudaStream_t stream_ = nullptr;
  int calls_ = 0;
};

}  // namespace feedline::test
