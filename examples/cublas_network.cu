// Computes the network of network.h on a GPU: cuBLAS computes the matrix products, and small elementwise kernels do the
// rest. All work is enqueued on one stream; the host waits only for the loss.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <for_each.cuh>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "network.h"

namespace {

using feedline::DType;

void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(cublasGetStatusString(status));
}

// An array in the memory of the calling thread's current GPU. `stream` fills it with zeros.
template <typename T>
class Array {
 public:
  Array(int64_t size, cudaStream_t stream) : size_(size) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes()));
    check(cudaMemsetAsync(data_, 0, bytes(), stream));
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  Array(Array&& other) noexcept : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
  ~Array() { cudaFree(data_); }
  T* data() const { return data_; }
  int64_t size() const { return size_; }
  size_t bytes() const { return static_cast<size_t>(size_) * sizeof(T); }

 private:
  int64_t size_;
  T* data_ = nullptr;
};

template <typename T>
constexpr cudaDataType_t type_of = std::is_same_v<T, float>    ? CUDA_R_32F
                                   : std::is_same_v<T, __half> ? CUDA_R_16F
                                                               : CUDA_R_16BF;

struct Stream {
  explicit Stream(int gpu) {
    check(cudaSetDevice(gpu));
    check(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking));
  }
  ~Stream() {
    cudaStreamSynchronize(handle);
    cudaStreamDestroy(handle);
  }
  cudaStream_t handle = nullptr;
};

struct Blas {
  explicit Blas(cudaStream_t stream) {
    check(cublasCreate(&handle));
    check(cublasSetStream(handle, stream));
  }
  ~Blas() { cublasDestroy(handle); }
  cublasHandle_t handle = nullptr;
};

// T is the type of weights, inputs, outputs of layers, and gradients: float, __half or __nv_bfloat16.
template <typename T>
class CublasNetwork final : public Network {
 public:
  CublasNetwork(int gpu, int64_t rows, DType precision)
      : gpu_(gpu), rows_(rows), precision_(precision), stream_(gpu), blas_(stream_.handle) {
    for (const std::vector<float>& first : first_values()) {
      const auto size = static_cast<int64_t>(first.size());
      values_.emplace_back(size, stream());
      check(cudaMemcpyAsync(values_.back().data(), first.data(), values_.back().bytes(), cudaMemcpyHostToDevice,
                            stream()));
      check(cudaStreamSynchronize(stream()));
      weights_.emplace_back(size, stream());
      gradients_.emplace_back(size, stream());
      velocities_.emplace_back(size, stream());
    }
    for (size_t layer = 0; layer < layers; layer++) {
      outputs_.emplace_back(rows * widths[layer + 1], stream());
      slopes_.emplace_back(rows * widths[layer + 1], stream());
    }
    fill(ones_.data(), rows, 1);
    load_kernels();
  }

  std::vector<feedline::Variable> variables() override {
    std::vector<feedline::Variable> variables;
    for (size_t p = 0; p < parameters; p++)
      variables.push_back({name_of(static_cast<int>(p)),
                           {values_[p].data(), static_cast<size_t>(values_[p].size())},
                           {gradients_[p].data(), precision_, {gradients_[p].size()}}});
    return variables;
  }
  feedline::DataParallelOptions options() const override {
    feedline::DataParallelOptions options;
    options.device = feedline::cuda(gpu_);
    options.stream = feedline::Stream::cuda(stream_.handle);
    return options;
  }
  feedline::Apply descent(Descent descent) override {
    return [this, descent](size_t variable, std::span<float> value, std::span<const float> gradient) {
      descend(value.data(), gradient.data(), velocities_[variable].data(), static_cast<int64_t>(value.size()), descent);
    };
  }

  void pass(feedline::Batch& batch, float scale, const std::function<void(size_t)>& ready) override {
    if (batch.rows() != rows_)
      throw std::runtime_error("a batch has " + std::to_string(batch.rows()) + " rows, and the network is made for " +
                               std::to_string(rows_) + "; set batch.last_batch_policy to DROP");
    const feedline::Stream stream = options().stream;
    batch.ready_on(stream);
    compute(static_cast<const T*>(batch.at("board").data), static_cast<const T*>(batch.at("flags").data),
            static_cast<const float*>(batch.at("score").data), scale, ready);
    batch.release_on(stream);
  }
  double take_loss() override {
    float loss = 0;
    check(cudaMemcpyAsync(&loss, loss_.data(), sizeof loss, cudaMemcpyDeviceToHost, stream()));
    check(cudaMemsetAsync(loss_.data(), 0, sizeof loss, stream()));
    check(cudaStreamSynchronize(stream()));
    return loss;
  }

  // The functions from here to `private` are public only because nvcc requires that of functions with device lambdas.

  void fill(T* to, int64_t n, float value) {
    for_each(n, stream(), [=] __device__(int64_t i) { to[i] = T(value); });
  }
  void round(const float* from, T* to, int64_t n) {
    for_each(n, stream(), [=] __device__(int64_t i) { to[i] = T(from[i]); });
  }
  void descend(float* value, const float* by, float* velocity, int64_t n, Descent descent) {
    for_each(n, stream(), [=] __device__(int64_t i) {
      velocity[i] = descent.momentum * velocity[i] + by[i];
      value[i] -= descent.rate * velocity[i];
    });
  }

  void compute(const T* board, const T* flags, const float* wanted, float scale,
               const std::function<void(size_t)>& ready) {
    for (size_t p = 0; p < parameters; p++) round(values_[p].data(), weights_[p].data(), values_[p].size());
    for (size_t layer = 0; layer < layers; layer++) forward(layer, board, flags);

    T* const slope = slopes_[layers - 1].data();
    for_each(rows_, stream(),
             [=, error = errors_.data(), out = outputs_[layers - 1].data(),
              by = 2 * scale / static_cast<float>(rows_)] __device__(int64_t i) {
               error[i] = float(out[i]) - wanted[i];
               slope[i] = T(error[i] * by);
             });
    const auto rows = static_cast<int>(rows_);
    multiply<float, float>({errors_.data(), true}, {errors_.data()}, 1, 1, rows, loss_.data(),
                           1 / static_cast<float>(rows_), 1);

    for (size_t layer = layers; layer-- > 0;) {
      backward(layer, board, flags, ready);
      if (layer > 0) slope_behind(layer - 1);
    }
  }

  // Computes outputs = relu(inputs * weights + bias); the last layer has no ReLU.
  void forward(size_t layer, const T* board, const T* flags) {
    const int rows = static_cast<int>(rows_), width = widths[layer + 1];
    T* const out = outputs_[layer].data();
    const T* const weights = weights_[2 * layer].data();
    for_each(rows_ * width, stream(),
             [=, bias = weights_[2 * layer + 1].data()] __device__(int64_t i) { out[i] = bias[i % width]; });
    if (layer == 0) {  // the inputs of this layer are the board and the flags, side by side
      multiply<T, T>({board}, {weights}, rows, width, board_inputs, out, 1, 1);
      multiply<T, T>({flags}, {weights + board_inputs * width}, rows, width, flag_inputs, out, 1, 1);
    } else {
      multiply<T, T>({outputs_[layer - 1].data()}, {weights}, rows, width, widths[layer], out, 1, 1);
    }
    if (layer + 1 < layers)
      for_each(rows_ * width, stream(), [=] __device__(int64_t i) {
        if (float(out[i]) < 0) out[i] = T(0.0F);
      });
  }

  // Computes the gradients of this layer's bias and weights from the slope of its outputs: the derivative of the loss.
  void backward(size_t layer, const T* board, const T* flags, const std::function<void(size_t)>& ready) {
    const int rows = static_cast<int>(rows_), width = widths[layer + 1];
    const T* const slope = slopes_[layer].data();
    T* const gradient = gradients_[2 * layer].data();
    multiply<T, T>({ones_.data(), true}, {slope}, 1, width, rows, gradients_[2 * layer + 1].data());
    ready(2 * layer + 1);
    if (layer == 0) {
      multiply<T, T>({board, true}, {slope}, board_inputs, width, rows, gradient);
      multiply<T, T>({flags, true}, {slope}, flag_inputs, width, rows, gradient + board_inputs * width);
    } else {
      multiply<T, T>({outputs_[layer - 1].data(), true}, {slope}, widths[layer], width, rows, gradient);
    }
    ready(2 * layer);
  }

  // Computes the slope of this layer's outputs from that of the next layer.
  void slope_behind(size_t layer) {
    const int rows = static_cast<int>(rows_), width = widths[layer + 1], next = widths[layer + 2];
    T* const slope = slopes_[layer].data();
    multiply<T, T>({slopes_[layer + 1].data()}, {weights_[2 * layer + 2].data(), true}, rows, width, next, slope);
    for_each(rows_ * width, stream(), [=, out = outputs_[layer].data()] __device__(int64_t i) {
      if (!(float(out[i]) > 0)) slope[i] = T(0.0F);
    });
  }

 private:
  cudaStream_t stream() const { return stream_.handle; }

  // Runs every kernel once, so that CUDA loads it. Loading a kernel during the training might wait for NCCL's kernels,
  // which wait for other GPUs.
  void load_kernels() {
    const Array<T> board(rows_ * board_inputs, stream()), flags(rows_ * flag_inputs, stream());
    const Array<float> wanted(rows_, stream());
    compute(board.data(), flags.data(), wanted.data(), 1, [](size_t) {});
    take_loss();
    descend(values_[1].data(), loss_.data(), velocities_[1].data(), 1, {});  // with a rate of 0
    check(cudaStreamSynchronize(stream()));
  }

  // A factor of a matrix product. All matrices in this file are row-major.
  template <typename From>
  struct Factor {
    const From* data;
    bool transposed = false;
  };
  // Computes to[m, n] = alpha * a[m, k] * b[k, n] + beta * to. cuBLAS expects column-major matrices, which are these
  // matrices transposed, so it is asked for to' = b' a'.
  template <typename From, typename To>
  void multiply(Factor<From> a, Factor<From> b, int m, int n, int k, To* to, float alpha = 1, float beta = 0) {
    check(cublasGemmEx(blas_.handle, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                       n, m, k, &alpha, b.data, type_of<From>, b.transposed ? k : n, a.data, type_of<From>,
                       a.transposed ? m : k, &beta, to, type_of<To>, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

  const int gpu_;
  const int64_t rows_;
  const DType precision_;
  const Stream stream_;
  const Blas blas_;
  std::vector<Array<float>> values_, velocities_;
  std::vector<Array<T>> weights_, gradients_, outputs_, slopes_;  // weights_ are the values, rounded to T
  Array<T> ones_{rows_, stream()};
  Array<float> errors_{rows_, stream()}, loss_{1, stream()};
};

}  // namespace

std::unique_ptr<Network> cublas_network(int gpu, int64_t rows, DType precision) {
  if (precision == DType::float16) return std::make_unique<CublasNetwork<__half>>(gpu, rows, precision);
  if (precision == DType::bfloat16) return std::make_unique<CublasNetwork<__nv_bfloat16>>(gpu, rows, precision);
  return std::make_unique<CublasNetwork<float>>(gpu, rows, precision);
}
