// Trains a small network to score chess positions, on several replicas at once (threads of this process), and prints
// the mean loss of each epoch. What a trainer does with feedline, from pipeline to variables; the arithmetic is
// Eigen's.
//
//   train_chess examples/train.textproto --replicas 4 --mode parameter_server --precision bfloat16
#include <feedline/data_parallel.h>
#include <feedline/feeder.h>

#include <CLI/CLI.hpp>
#include <Eigen/Dense>
#include <cmath>
#include <cstdio>
#include <map>
#include <random>
#include <thread>

namespace {

using feedline::DType;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Input = Eigen::Map<const Matrix>;

enum class Mode { replicated, parameter_server, distributed_replicated, asynchronous };
constexpr Eigen::Index inputs = 8 * 8 * 24 + 10;  // board and flags

struct Flags {
  std::string pipeline;
  int replicas = 1, epochs = 10;
  Mode mode = Mode::replicated;
  DType precision = DType::float32;
  float rate = 0.02F, momentum = 0.9F;
};

// What 16 bits leave of numbers.
Matrix rounded(const Matrix& m, DType precision) {
  if (precision == DType::float16) return m.cast<Eigen::half>().cast<float>();
  if (precision == DType::bfloat16) return m.cast<Eigen::bfloat16>().cast<float>();
  return m;
}

// A layer's weights (or biases): the float32 master, what forward reads of it, and the gradient as it travels.
struct Parameter {
  Parameter(Eigen::Index rows, Eigen::Index columns, DType of, std::mt19937& random)
      : value(rows, columns), precision(of), gradient_bytes(static_cast<size_t>(rows * columns) * size_of(of)) {
    std::normal_distribution<float> normal(0, rows > 1 ? std::sqrt(2 / static_cast<float>(rows)) : 0.01F);
    for (float& x : value.reshaped()) x = normal(random);
  }
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

// board and flags -> 64 -> 32 -> 1.
class Network {
 public:
  explicit Network(DType precision) : precision_(precision) {
    std::mt19937 random(1);
    const Eigen::Index sizes[] = {inputs, 64, 32, 1};
    for (size_t layer = 0; layer < 3; layer++) {
      parameters_.emplace_back(sizes[layer], sizes[layer + 1], precision, random);
      parameters_.emplace_back(1, sizes[layer + 1], precision, random);
    }
  }
  std::vector<feedline::Variable> variables() {
    std::vector<feedline::Variable> variables;
    for (size_t p = 0; p < parameters_.size(); p++)
      variables.push_back(parameters_[p].variable((p % 2 ? "bias " : "weights ") + std::to_string(p / 2)));
    return variables;
  }

  /// The mean squared error over these rows. ready(v): the gradient of variable v, times `scale`, is written.
  template <typename Ready>
  double pass(const Matrix& input, const Eigen::VectorXf& wanted, float scale, Ready ready) {
    std::vector<Matrix> weights, layers{input};
    for (size_t layer = 0; layer < 3; layer++) {
      weights.push_back(rounded(parameters_[2 * layer].value, precision_));
      const Matrix bias = rounded(parameters_[2 * layer + 1].value, precision_);
      Matrix out = (layers.back() * weights.back()).rowwise() + bias.row(0);
      if (layer < 2) out = out.cwiseMax(0);
      layers.push_back(std::move(out));
    }
    const Matrix error = layers[3] - wanted;
    Matrix slope = error * (2 * scale / static_cast<float>(error.rows()));
    for (size_t layer = 3; layer-- > 0;) {
      parameters_[2 * layer + 1].set_gradient(slope.colwise().sum());
      ready(2 * layer + 1);
      parameters_[2 * layer].set_gradient(layers[layer].transpose() * slope);
      ready(2 * layer);
      if (layer > 0)
        slope = (slope * weights[layer].transpose()).cwiseProduct((layers[layer].array() > 0).cast<float>().matrix());
    }
    return error.cast<double>().squaredNorm() / static_cast<double>(error.rows());
  }

 private:
  const DType precision_;
  std::vector<Parameter> parameters_;
};

// Momentum for the variables that this rank applies. Gradients of several workers that come one after another, each
// made from older values, are a momentum of their own (Mitliagkas et al., 2016): then without.
feedline::Apply descent(Flags flags) {
  if (flags.mode == Mode::asynchronous && flags.replicas > 1) flags.momentum = 0;
  return [flags, velocities = std::map<size_t, std::vector<float>>()](size_t variable, std::span<float> value,
                                                                      std::span<const float> gradient) mutable {
    std::vector<float>& velocity = velocities[variable];
    velocity.resize(value.size());
    for (size_t i = 0; i < value.size(); i++) {
      velocity[i] = flags.momentum * velocity[i] + gradient[i];
      value[i] -= flags.rate * velocity[i];
    }
  };
}

/// What makes a replica's end of the training; two machines stand side by side in distributed_replicated, and a server
/// serves all in asynchronous.
class Replicas {
 public:
  explicit Replicas(const Flags& flags) : flags_(flags) {
    if (flags.mode == Mode::asynchronous) {
      Ends workers;
      for (int replica = 0; replica < flags.replicas; replica++) {
        auto pair = feedline::communicators_between_threads(2);
        workers.push_back(std::move(pair[0]));
        ends_.push_back(std::move(pair[1]));
      }
      server_ = std::thread([flags, workers = std::move(workers)] {
        Network network(flags.precision);
        feedline::serve_parameters(workers, 0, 1, network.variables(), descent(flags));
      });
      return;
    }
    machines_ = flags.mode == Mode::distributed_replicated && flags.replicas % 2 == 0 ? 2 : 1;
    for (int machine = 0; machine < machines_; machine++) add(ends_, flags.replicas / machines_);
    add(leaders_, machines_);
  }
  ~Replicas() {
    ends_.clear();  // of replicas that never came to train: the server waits for nobody
    if (server_.joinable()) server_.join();
  }
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  std::unique_ptr<feedline::DataParallel> training(int replica, std::vector<feedline::Variable> variables) {
    const int of_machine = flags_.replicas / machines_;
    auto end = std::move(ends_[static_cast<size_t>(replica)]);
    if (flags_.mode == Mode::asynchronous) return feedline::asynchronous({end}, std::move(variables));
    if (flags_.mode == Mode::replicated) return feedline::replicated(end, std::move(variables), descent(flags_));
    if (flags_.mode == Mode::parameter_server)
      return feedline::parameter_server(end, std::move(variables), descent(flags_));
    auto leader = replica % of_machine == 0 ? std::move(leaders_[static_cast<size_t>(replica / of_machine)]) : nullptr;
    return feedline::distributed_replicated(end, leader, std::move(variables), descent(flags_));
  }

 private:
  using Ends = std::vector<std::shared_ptr<feedline::Communicator>>;
  static void add(Ends& to, int ranks) {
    for (auto& end : feedline::communicators_between_threads(ranks)) to.push_back(std::move(end));
  }
  const Flags flags_;
  int machines_ = 1;
  Ends ends_, leaders_;
  std::thread server_;
};

Matrix input_of(const feedline::Batch& batch) {
  const feedline::TensorView board = batch.at("board"), flags = batch.at("flags");
  const Input squares(static_cast<const float*>(board.data), batch.rows(), board.shape.elements() / batch.rows());
  const Input bits(static_cast<const float*>(flags.data), batch.rows(), flags.shape.elements() / batch.rows());
  Matrix input(batch.rows(), squares.cols() + bits.cols());
  input << squares, bits;
  return input;
}

/// One replica's training: the sum of its losses in each epoch, over its steps.
std::vector<double> train(const Flags& flags, feedline::Feeder& feeder, Replicas& replicas, int replica) {
  Network network(flags.precision);
  const auto training = replicas.training(replica, network.variables());
  feedline::LossScale scale(flags.precision == DType::float16 ? 1024 : 1);
  std::vector<double> losses;
  for (int epoch = 0; epoch < flags.epochs; epoch++) {
    losses.push_back(0);
    while (auto batch = feeder.next(replica)) {
      batch->ready_on(feedline::Stream::host);
      const Matrix input = input_of(batch);
      const Eigen::VectorXf wanted =
          Eigen::Map<const Eigen::VectorXf>(static_cast<const float*>(batch.at("score").data), batch.rows());
      batch->release_on(feedline::Stream::host);
      losses.back() += network.pass(input, wanted, scale.value(), [&](size_t v) { training->ready(v); });
      scale.update(training->step(scale.value()));
    }
  }
  return losses;
}

int run(const Flags& flags) {
  feedline::Options options;
  options.devices.assign(static_cast<size_t>(flags.replicas), feedline::host());
  feedline::Feeder feeder(feedline::load_pipeline(flags.pipeline), options);
  Replicas replicas(flags);
  std::vector<std::vector<double>> losses(static_cast<size_t>(flags.replicas));
  std::vector<std::exception_ptr> failed(losses.size());
  std::vector<std::thread> threads;
  for (int replica = 0; replica < flags.replicas; replica++)
    threads.emplace_back([&, replica, r = static_cast<size_t>(replica)] {
      try {
        losses[r] = train(flags, feeder, replicas, replica);
      } catch (...) {
        failed[r] = std::current_exception();
        feeder.stop();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failed)
    if (failure) std::rethrow_exception(failure);
  const auto steps = static_cast<double>(feeder.steps_per_epoch()) * flags.replicas;
  for (size_t epoch = 0; epoch < losses[0].size(); epoch++) {
    double sum = 0;
    for (const std::vector<double>& of_replica : losses) sum += of_replica[epoch];
    std::printf("epoch %zu loss %.8f\n", epoch + 1, sum / steps);
  }
  const feedline::Report report = feeder.report();
  std::printf("the feed was ready in %.2f %% of next()\n", 100 * report.data_readiness);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a small network on chess positions, on several replicas.");
  app.add_option("pipeline", flags.pipeline, "What to feed: tensors board, flags and score")->required();
  app.add_option("--replicas", flags.replicas, "Replicas that share each step")->check(CLI::Range(1, 64));
  app.add_option("--epochs", flags.epochs, "How often to pass over the data")->check(CLI::PositiveNumber);
  app.add_option("--rate", flags.rate, "Of learning");
  app.add_option("--mode", flags.mode, "How replicas share their gradients")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, Mode>{{"replicated", Mode::replicated},
                                                              {"parameter_server", Mode::parameter_server},
                                                              {"distributed_replicated", Mode::distributed_replicated},
                                                              {"asynchronous", Mode::asynchronous}}));
  app.add_option("--precision", flags.precision, "Of weights and gradients; masters are float32")
      ->transform(CLI::CheckedTransformer(std::map<std::string, DType>{
          {"float32", DType::float32}, {"float16", DType::float16}, {"bfloat16", DType::bfloat16}}));
  CLI11_PARSE(app, argc, argv);
  try {
    return run(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
