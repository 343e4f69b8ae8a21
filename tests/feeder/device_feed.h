// A minimal trainer on a GPU: it reads batches on a stream of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <future>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "distributed.h"
#include "support/device_buffer.h"
#include "support/no_gpus.h"

namespace feedline::test {

/// Returns the devices of `replicas` replicas: the GPUs from the first on, each once, then from the first on again.
inline std::vector<DeviceId> gpus(int replicas) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < replicas; i++) devices.push_back(cuda(i % visible_gpus().count));
  return devices;
}

inline Options of_devices(std::vector<DeviceId> devices) {
  Options options;
  options.devices = std::move(devices);
  options.threads = 1;
  return options;
}

class Consumer {
 public:
  explicit Consumer(DeviceId device = cuda(0)) {
    require(cudaSetDevice(device.ordinal));
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~Consumer() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  Stream stream() const { return Stream::cuda(stream_); }

  std::string read(const void* device, size_t bytes) {
    std::string out(bytes, '\0');
    if (bytes > 0) require(cudaMemcpyAsync(out.data(), device, bytes, cudaMemcpyDeviceToHost, stream_));
    require(cudaStreamSynchronize(stream_));
    return out;
  }

  /// Returns the batch as text and releases it.
  std::string text(Batch& batch) {
    batch.ready_on(stream());
    std::string text = text_of(batch, [&](const TensorView& tensor) { return read(tensor.data, tensor.size_bytes()); });
    batch.release_on(stream());
    return text;
  }

  /// Makes all work that the stream is given from now on wait for `until`. Nothing may be allocated meanwhile, because
  /// an allocation would wait, too. A case that does so has the tag [holds]: with compute-sanitizer, other streams may
  /// wait for this one.
  void hold(std::future<void> until) {
    gates_.push_back(std::make_unique<std::future<void>>(std::move(until)));
    require(cudaLaunchHostFunc(
        stream_, [](void* gate) { static_cast<std::future<void>*>(gate)->wait(); }, gates_.back().get()));
  }

  /// Reads the batch when the stream reaches it; wait() then sets `text` to what text() would have returned. If
  /// `released` is false the batch is only destroyed, not released on the stream.
  void read_later(Batch& batch, std::string& text, bool released) {
    use_later(batch, text);
    if (released) batch.release_on(stream());
    batch = Batch();
  }

  /// The same, but leaves the batch to the caller.
  void use_later(const Batch& batch, std::string& text) {
    batch.ready_on(stream());
    Late& late = *late_.emplace_back(std::make_unique<Late>());
    late.text = &text;
    late.parts = text_of(batch, [&](const TensorView& tensor) {
      const size_t bytes = tensor.size_bytes();
      if (spare_.empty() || spare_.back()->size() < bytes) throw std::logic_error("reserve() more");
      late.tensors.push_back(std::move(spare_.back()));
      spare_.pop_back();
      late.sizes.push_back(bytes);
      if (bytes > 0)  // a copy to the host would block until the stream reaches it
        require(cudaMemcpyAsync(late.tensors.back()->data(), tensor.data, bytes, cudaMemcpyDeviceToDevice, stream_));
      return std::string(1, '\0');  // stands for the bytes, which wait() fills in
    });
  }

  void wait() {
    require(cudaStreamSynchronize(stream_));
    for (const auto& late : late_) {
      late->text->clear();
      size_t next = 0;
      for (const char c : late->parts) {
        *late->text += c == '\0' ? read(late->tensors[next]->data(), late->sizes[next]) : std::string(1, c);
        if (c == '\0') next++;
      }
    }
    for (const auto& late : late_) std::move(late->tensors.begin(), late->tensors.end(), std::back_inserter(spare_));
    late_.clear();
  }

  /// Allocates buffers for read_later(): until `tensors` are spare, each of `bytes` bytes.
  void reserve(size_t tensors, size_t bytes) {
    while (spare_.size() < tensors) spare_.push_back(std::make_unique<DeviceBuffer>(bytes));
  }

 private:
  struct Late {
    std::string* text;
    std::string parts;
    std::vector<std::unique_ptr<DeviceBuffer>> tensors;
    std::vector<size_t> sizes;
  };
  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<std::future<void>>> gates_;
  std::vector<std::unique_ptr<Late>> late_;
  std::vector<std::unique_ptr<DeviceBuffer>> spare_;
};

/// The consumers of all replicas, each on its replica's GPU.
class Consumers {
 public:
  explicit Consumers(const std::vector<DeviceId>& devices) {
    for (const DeviceId device : devices) consumers_.emplace_back(device);
  }
  std::string text(Batch& batch) { return consumers_[static_cast<size_t>(batch.replica())].text(batch); }

 private:
  std::deque<Consumer> consumers_;
};

}  // namespace feedline::test
