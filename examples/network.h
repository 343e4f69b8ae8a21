// The network that train_chess trains: board and flags -> 64 -> 32 -> 1, with ReLU between the layers. A CPU or a GPU
// computes it.
#pragma once

#include <feedline/batch.h>
#include <feedline/data_parallel.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

constexpr int layers = 3;
constexpr int board_inputs = 8 * 8 * 24, flag_inputs = 10;
constexpr std::array<int, layers + 1> widths = {board_inputs + flag_inputs, 64, 32, 1};
constexpr int parameters = 2 * layers;  // for each layer the weights [inputs, outputs], then the biases [outputs]

inline int rows_of(int parameter) { return parameter % 2 ? 1 : widths[static_cast<size_t>(parameter / 2)]; }
inline int columns_of(int parameter) { return widths[static_cast<size_t>(parameter / 2) + 1]; }
inline std::string name_of(int parameter) {
  return (parameter % 2 ? "bias " : "weights ") + std::to_string(parameter / 2);
}

/// Returns the initial values of each parameter, row by row.
inline std::vector<std::vector<float>> first_values() {
  std::vector<std::vector<float>> values;
  std::mt19937 random(1);
  for (int p = 0; p < parameters; p++) {
    const int rows = rows_of(p);
    std::normal_distribution<float> normal(0, rows > 1 ? std::sqrt(2 / static_cast<float>(rows)) : 0.01F);
    values.emplace_back(static_cast<size_t>(rows) * static_cast<size_t>(columns_of(p)));
    for (float& x : values.back()) x = normal(random);
  }
  return values;
}

/// The settings of gradient descent.
struct Descent {
  float rate, momentum;
};
/// Returns an optimizer that does gradient descent with momentum on the host.
feedline::Apply descent_on_host(Descent descent);

class Network {
 public:
  virtual ~Network() = default;

  /// Returns the variables: float32 master values, and gradients in the precision in which the network is computed.
  virtual std::vector<feedline::Variable> variables() = 0;
  /// Returns the device on which the variables lie, and its stream.
  virtual feedline::DataParallelOptions options() const = 0;
  /// Returns an optimizer that does gradient descent on that device.
  virtual feedline::Apply descent(Descent descent) = 0;

  /// Computes the gradients of a batch, releases the batch, and adds its mean squared error to the loss. Calls ready(v)
  /// once the gradient of variable v, times `scale`, is written, or the work that writes it is enqueued on the stream.
  virtual void pass(feedline::Batch& batch, float scale, const std::function<void(size_t)>& ready) = 0;
  /// Returns the sum of the mean squared errors of all batches since the last call.
  virtual double take_loss() = 0;
};

/// Makes a network on the host.
std::unique_ptr<Network> eigen_network(feedline::DType precision);

/// Makes a network on a GPU, for batches of exactly `rows` rows whose board and flags have the dtype `precision`. It
/// exists only in builds with CUDA and cuBLAS.
std::unique_ptr<Network> cublas_network(int gpu, int64_t rows, feedline::DType precision);
