// A model on a GPU for tests of data parallelism, and communicators for ranks with a GPU each.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "feedline/nccl_communicator.h"
#include "replicas.h"
#include "support/device_buffer.h"
#include "support/ranks.h"

namespace feedline::test {

inline void expect(bool so, const char* otherwise) {
  if (!so) throw std::runtime_error(otherwise);
}

using Gradients = std::vector<std::vector<std::byte>>;
inline Gradients gradients(int rank, int step, DType dtype) {
  Gradients all;
  for (size_t v = 0; v < sizes.size(); v++) all.push_back(gradient(rank, step, v, dtype));
  return all;
}

/// Returns gradients that are all 10 `times`; descend() multiplies them by 0.1.
inline Gradients tens(int times) {
  Gradients all = gradients(0, 0, DType::float32);
  const float each = 10 * static_cast<float>(times);
  for (auto& gradient : all)
    for (size_t i = 0; i < gradient.size(); i += sizeof each) std::memcpy(gradient.data() + i, &each, sizeof each);
  return all;
}

/// Returns the GPU of a rank. Ranks share GPUs if there are fewer GPUs than ranks.
inline DeviceId gpu_of(int rank) { return cuda(rank % std::max(1, visible_gpus().count)); }

/// A model on the GPU with the rank's number. The constructor makes it the calling thread's current device.
class GpuModel {
 public:
  GpuModel(int rank, DType dtype) : rank_(rank), dtype_(dtype) {
    require(cudaSetDevice(gpu_of(rank).ordinal));
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    const Values first = first_values(rank);
    for (size_t v = 0; v < sizes.size(); v++) {
      values_.emplace_back(sizes[v] * sizeof(float));
      gradients_.emplace_back(sizes[v] * size_of(dtype));
      require(cudaMemcpyAsync(values_[v].data(), first[v].data(), values_[v].size(), cudaMemcpyHostToDevice, stream_));
    }
    require(cudaStreamSynchronize(stream_));
  }
  ~GpuModel() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  GpuModel(const GpuModel&) = delete;
  GpuModel& operator=(const GpuModel&) = delete;

  int rank() const { return rank_; }
  cudaStream_t stream() const { return stream_; }
  DataParallelOptions options() const {
    DataParallelOptions options;
    options.device = gpu_of(rank_);
    options.stream = Stream::cuda(stream_);
    return options;
  }
  std::vector<Variable> variables() const {
    std::vector<Variable> all;
    for (size_t v = 0; v < sizes.size(); v++)
      all.push_back({"v" + std::to_string(v),
                     {static_cast<float*>(values_[v].data()), sizes[v]},
                     {gradients_[v].data(), dtype_, {static_cast<int64_t>(sizes[v])}}});
    return all;
  }

  /// Returns a function that runs descend() in stream order: on the host, between two copies.
  Apply apply() {
    return [this](size_t, std::span<float> value, std::span<const float> by) {
      int current = -1;
      require(cudaGetDevice(&current));
      expect(current == gpu_of(rank_).ordinal, "applied on another device, where kernels cannot be launched");
      Descent& descent = descents_.emplace_back(value.size());
      const size_t bytes = value.size_bytes();
      require(cudaMemcpyAsync(descent.value.data(), value.data(), bytes, cudaMemcpyDeviceToHost, stream_));
      require(cudaMemcpyAsync(descent.by.data(), by.data(), bytes, cudaMemcpyDeviceToHost, stream_));
      const auto on_host = [](void* of) {
        auto& [values, gradient] = *static_cast<Descent*>(of);
        descend(values.span(), gradient.span());
      };
      require(cudaLaunchHostFunc(stream_, on_host, &descent));
      require(cudaMemcpyAsync(value.data(), descent.value.data(), bytes, cudaMemcpyHostToDevice, stream_));
    };
  }

  /// Makes a step with these gradients. Returns whether they were finite.
  bool step(DataParallel& training, Gradients gradients, float loss_scale) {
    const Gradients& now = gradients_on_their_way_.emplace_back(std::move(gradients));
    for (size_t v = sizes.size(); v-- > 0;) {
      require(cudaMemcpyAsync(gradients_[v].data(), now[v].data(), now[v].size(), cudaMemcpyHostToDevice, stream_));
      training.ready(v);
    }
    return training.step(loss_scale);
  }
  /// Returns the values after all work that the stream was given.
  Values values() const {
    Values now = first_values(0);
    for (size_t v = 0; v < sizes.size(); v++)
      require(cudaMemcpyAsync(now[v].data(), values_[v].data(), values_[v].size(), cudaMemcpyDeviceToHost, stream_));
    require(cudaStreamSynchronize(stream_));
    return now;
  }

 private:
  struct Descent {
    explicit Descent(size_t elements) : value(elements), by(elements) {}
    PinnedFloats value, by;
  };
  const int rank_;
  const DType dtype_;
  cudaStream_t stream_ = nullptr;
  std::deque<DeviceBuffer> values_, gradients_;
  std::deque<Gradients> gradients_on_their_way_;
  std::deque<Descent> descents_;
};

/// The place at which the ranks that own variables communicate.
enum class Owners { on_gpus, on_host };

/// Returns the communicators of ranks on the GPUs `members`.
inline Invite between_gpus(const std::vector<int>& members) {
  using Control = std::unique_ptr<Communicator>;
  std::vector<std::shared_ptr<Control>> controls;
  for (auto& end : communicators_between_threads(static_cast<int>(members.size())))
    controls.push_back(std::make_shared<Control>(std::move(end)));
  return [controls, members](int place) mutable {
    const auto p = static_cast<size_t>(place);
    return [control = std::move(controls[p]), gpu = gpu_of(members[p])] {
      return nccl_communicator(std::move(*control), gpu, {.drain = std::chrono::milliseconds(100)});
    };
  };
}

/// Runs `body` for all ranks at the same time, each with its model and training. Returns what each threw (its message),
/// or "".
template <typename Body>
std::vector<std::string> on_gpus(Mode mode, int ranks, Owners owners, DType dtype, Body body,
                                 bool check_finite = true) {
  Communicators communicators(mode, ranks, [&](const std::vector<int>& members, bool all_own) {
    return all_own && owners == Owners::on_host ? between_threads(members.size()) : between_gpus(members);
  });
  return side_by_side(ranks, [&](int rank) {
    const Communicators::Part part = communicators.part(rank);
    GpuModel model(rank, dtype);
    const Apply on_host = [](size_t, auto value, auto by) { descend(value, by); };
    DataParallelOptions options = model.options();
    options.check_finite = check_finite;
    const auto training =
        part.training(model.variables(), owners == Owners::on_host ? on_host : model.apply(), options);
    body(model, *training);
    training->wait();
  });
}

}  // namespace feedline::test
