// Computes the network of network.h on a CPU, with Eigen.
#include <Eigen/Dense>
#include <map>
#include <utility>

#include "network.h"

namespace {

using feedline::DType;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const Matrix>;

// Rounds the values to the precision, and converts them back to float32.
Matrix rounded(const Matrix& m, DType precision) {
  if (precision == DType::float16) return m.cast<Eigen::half>().cast<float>();
  if (precision == DType::bfloat16) return m.cast<Eigen::bfloat16>().cast<float>();
  return m;
}

// A parameter: its float32 master values, and the bytes of its gradient in the precision in which gradients travel.
struct Parameter {
  Parameter(Eigen::Index rows, Eigen::Index columns, const std::vector<float>& first, DType of)
      : value(Input(first.data(), rows, columns)),
        precision(of),
        gradient_bytes(static_cast<size_t>(rows * columns) * size_of(of)) {}
  feedline::Variable variable(const std::string& name) {
    return {
        name, {value.data(), static_cast<size_t>(value.size())}, {gradient_bytes.data(), precision, {value.size()}}};
  }
  void set_gradient(const Matrix& gradient) {
    if (precision == DType::float16)
      store<Eigen::half>(gradient);
    else if (precision == DType::bfloat16)
      store<Eigen::bfloat16>(gradient);
    else
      store<float>(gradient);
  }
  template <typename T>
  void store(const Matrix& gradient) {
    Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(
        reinterpret_cast<T*>(gradient_bytes.data()), value.rows(), value.cols()) = gradient.cast<T>();
  }

  Matrix value;
  DType precision;
  std::vector<std::byte> gradient_bytes;
};

// Returns a float32 tensor of the batch as a matrix with one row for each row of the batch.
Input matrix_of(const feedline::Batch& batch, const char* name) {
  const feedline::TensorView tensor = batch.at(name);
  return {static_cast<const float*>(tensor.data), batch.rows(), tensor.shape.elements() / batch.rows()};
}

class EigenNetwork final : public Network {
 public:
  explicit EigenNetwork(DType precision) : precision_(precision) {
    const auto first = first_values();
    for (int p = 0; p < parameters; p++)
      parameters_.emplace_back(rows_of(p), columns_of(p), first[static_cast<size_t>(p)], precision);
  }
  std::vector<feedline::Variable> variables() override {
    std::vector<feedline::Variable> variables;
    for (int p = 0; p < parameters; p++) variables.push_back(parameters_[static_cast<size_t>(p)].variable(name_of(p)));
    return variables;
  }
  feedline::DataParallelOptions options() const override { return {}; }
  feedline::Apply descent(Descent descent) override { return descent_on_host(descent); }

  void pass(feedline::Batch& batch, float scale, const std::function<void(size_t)>& ready) override {
    batch.ready_on(feedline::Stream::host);
    const Input board = matrix_of(batch, "board"), flags = matrix_of(batch, "flags");
    Matrix input(board.rows(), board.cols() + flags.cols());
    input << board, flags;
    const Matrix wanted = matrix_of(batch, "score");
    batch.release_on(feedline::Stream::host);

    std::vector<Matrix> weights, outputs{std::move(input)};
    for (size_t layer = 0; layer < layers; layer++) {
      weights.push_back(rounded(parameters_[2 * layer].value, precision_));
      const Matrix bias = rounded(parameters_[2 * layer + 1].value, precision_);
      Matrix out = (outputs.back() * weights.back()).rowwise() + bias.row(0);
      if (layer + 1 < layers) out = out.cwiseMax(0);
      outputs.push_back(std::move(out));
    }
    const Matrix error = outputs[layers] - wanted;
    loss_ += error.cast<double>().squaredNorm() / static_cast<double>(error.rows());
    Matrix slope = error * (2 * scale / static_cast<float>(error.rows()));
    for (size_t layer = layers; layer-- > 0;) {
      parameters_[2 * layer + 1].set_gradient(slope.colwise().sum());
      ready(2 * layer + 1);
      parameters_[2 * layer].set_gradient(outputs[layer].transpose() * slope);
      ready(2 * layer);
      if (layer > 0)
        slope = (slope * weights[layer].transpose()).cwiseProduct((outputs[layer].array() > 0).cast<float>().matrix());
    }
  }
  double take_loss() override { return std::exchange(loss_, 0); }

 private:
  const DType precision_;
  std::vector<Parameter> parameters_;
  double loss_ = 0;
};

}  // namespace

feedline::Apply descent_on_host(Descent descent) {
  return [descent, velocities = std::map<size_t, std::vector<float>>()](size_t variable, std::span<float> value,
                                                                        std::span<const float> gradient) mutable {
    std::vector<float>& velocity = velocities[variable];
    velocity.resize(value.size());
    for (size_t i = 0; i < value.size(); i++) {
      velocity[i] = descent.momentum * velocity[i] + gradient[i];
      value[i] -= descent.rate * velocity[i];
    }
  };
}

std::unique_ptr<Network> eigen_network(DType precision) { return std::make_unique<EigenNetwork>(precision); }
