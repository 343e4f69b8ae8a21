// The network that train_chess trains, whoever computes it: board and flags -> 64 -> 32 -> 1, with ReLU between.
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
constexpr int parameters = 2 * layers;  // of each layer the weights [inputs, outputs], then the biases [outputs]

inline int rows_of(int parameter) { return parameter % 2 ? 1 : widths[static_cast<size_t>(parameter / 2)]; }
inline int columns_of(int parameter) { return widths[static_cast<size_t>(parameter / 2) + 1]; }
inline std::string name_of(int parameter) {
  return (parameter % 2 ? "bias " : "weights ") + std::to_string(parameter / 2);
}

/// What each parameter begins with, row by row.
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

struct Descent {
  float rate, momentum;
};
/// Gradient descent with momentum, on the host.
feedline::Apply descent_on_host(Descent descent);

class Network {
 public:
  virtual ~Network() = default;

  /// Float32 masters, and gradients in the precision that the network is computed in.
  virtual std::vector<feedline::Variable> variables() = 0;
  /// Where they lie.
  virtual feedline::DataParallelOptions options() const = 0;
  /// Gradient descent there.
  virtual feedline::Apply descent(Descent descent) = 0;

  /// Takes a batch, and adds its mean squared error to the loss. ready(v): the gradient of variable v, times `scale`,
  /// is written, or a stream has been given what writes it.
  virtual void pass(feedline::Batch& batch, float scale, const std::function<void(size_t)>& ready) = 0;
  /// The sum of these errors since it was last taken.
  virtual double take_loss() = 0;
};

std::unique_ptr<Network> eigen_network(feedline::DType precision);

/// On a GPU, for batches of so many rows; board and flags of this precision, too. Only in builds with CUDA and cuBLAS.
std::unique_ptr<Network> cublas_network(int gpu, int64_t rows, feedline::DType precision);
