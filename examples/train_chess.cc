// Trains a small network to score chess positions, on several replicas at once (threads of this process), and prints
// the mean loss of each epoch. It shows what a trainer does with feedline, from the pipeline to the variables;
// network.h says what is computed, and where.
//
//   train_chess examples/train.textproto --replicas 4 --mode parameter_server --precision bfloat16
//   train_chess examples/train.textproto --replicas 2 --gpus --owners host
#include <feedline/feeder.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <thread>

#include "network.h"
#ifdef WITH_GPUS
#include <feedline/nccl_communicator.h>
#endif

namespace {

using feedline::DType;

enum class Mode { replicated, parameter_server, distributed_replicated, asynchronous };
enum class Owners { gpu, host };

struct Flags {
  std::string pipeline;
  int replicas = 1, epochs = 10, batch = 256;
  Mode mode = Mode::replicated;
  DType precision = DType::float32;
  bool gpus = false;
  Owners owners = Owners::gpu;
  Descent descent = {.rate = 0.02F, .momentum = 0.9F};

  /// Returns a replica's device. If NCCL connects the replicas (also if only inside each machine), each replica needs a
  /// GPU of its own. Otherwise several replicas may share one.
  feedline::DeviceId device(int replica) const {
    if (!gpus) return feedline::host();
    const bool shared = owners == Owners::host && mode != Mode::distributed_replicated;
    return feedline::cuda(shared ? replica % std::max(1, feedline::visible_gpus().count) : replica);
  }
};

std::unique_ptr<Network> network_of(const Flags& flags, [[maybe_unused]] int replica) {
#ifdef WITH_GPUS
  if (flags.gpus) return cublas_network(flags.device(replica).ordinal, flags.batch / flags.replicas, flags.precision);
#endif
  return eigen_network(flags.precision);
}

// Returns the settings of the optimizer. With several asynchronous workers the momentum is 0, because their gradients
// arrive one after another, each computed from older values, and that itself acts as a momentum (Mitliagkas et al.,
// 2016).
Descent descent_of(const Flags& flags) {
  Descent descent = flags.descent;
  if (flags.mode == Mode::asynchronous && flags.replicas > 1) descent.momentum = 0;
  return descent;
}

/// Makes each replica's DataParallel. With distributed_replicated, divides the replicas into two simulated machines, or
/// one if their number is odd. With asynchronous, runs one server on the host for all replicas.
class Replicas {
 public:
  explicit Replicas(const Flags& flags) : flags_(flags) {
    if (flags.mode == Mode::asynchronous) {
      std::vector<std::shared_ptr<feedline::Communicator>> workers;
      for (int replica = 0; replica < flags.replicas; replica++) {
        auto pair = feedline::communicators_between_threads(2);
        workers.push_back(std::move(pair[0]));
        ends_.push_back(std::move(pair[1]));
      }
      server_ = std::thread([flags, workers = std::move(workers)] {
        const auto network = eigen_network(flags.precision);
        feedline::serve_parameters(workers, 0, 1, network->variables(), network->descent(descent_of(flags)));
      });
      return;
    }
    machines_ = flags.mode == Mode::distributed_replicated && flags.replicas % 2 == 0 ? 2 : 1;
    for (int machine = 0; machine < machines_; machine++) add(ends_, flags.replicas / machines_);
    if (flags.mode == Mode::distributed_replicated) add(leaders_, machines_);
  }
  ~Replicas() {
    ends_.clear();  // so that the server does not wait for replicas that have not taken their communicator
    if (server_.joinable()) server_.join();
  }
  Replicas(const Replicas&) = delete;
  Replicas& operator=(const Replicas&) = delete;

  std::unique_ptr<feedline::DataParallel> training(int replica, Network& network) {
    const Owners owners = flags_.gpus ? flags_.owners : Owners::host;
    const bool applies_on_gpu = owners == Owners::gpu && flags_.mode != Mode::asynchronous;
    const feedline::Apply apply =
        applies_on_gpu ? network.descent(descent_of(flags_)) : descent_on_host(descent_of(flags_));
    auto end = std::move(end_of(replica));
    if (flags_.mode == Mode::asynchronous)
      return feedline::asynchronous({std::move(end)}, network.variables(), network.options());
    if (flags_.mode == Mode::replicated)
      return feedline::replicated(owned(std::move(end), replica, owners), network.variables(), apply,
                                  network.options());
    if (flags_.mode == Mode::parameter_server)
      return feedline::parameter_server(owned(std::move(end), replica, owners), network.variables(), apply,
                                        network.options());
    auto leader = leads(replica) ? owned(std::move(leader_of(replica)), replica, owners) : nullptr;
    auto machine = owned(std::move(end), replica, flags_.gpus ? Owners::gpu : Owners::host);
    return feedline::distributed_replicated(std::move(machine), std::move(leader), network.variables(), apply,
                                            network.options());
  }
  /// Destroys the replica's communicators if it has not taken them, so that the other replicas do not wait for it.
  void leave(int replica) {
    end_of(replica).reset();
    if (!leaders_.empty() && leads(replica)) leader_of(replica).reset();
  }

 private:
  using Ends = std::vector<std::unique_ptr<feedline::Communicator>>;
  static void add(Ends& to, int ranks) {
    for (auto& end : feedline::communicators_between_threads(ranks)) to.push_back(std::move(end));
  }
  bool leads(int replica) const { return replica % (flags_.replicas / machines_) == 0; }
  std::unique_ptr<feedline::Communicator>& end_of(int replica) { return ends_[static_cast<size_t>(replica)]; }
  std::unique_ptr<feedline::Communicator>& leader_of(int replica) {
    return leaders_[static_cast<size_t>(replica / (flags_.replicas / machines_))];
  }
  // Makes the communicator over the memory in which gradients are summed and applied: that of the GPU or of the host.
  std::shared_ptr<feedline::Communicator> owned(std::unique_ptr<feedline::Communicator> end,
                                                [[maybe_unused]] int replica, [[maybe_unused]] Owners owners) const {
#ifdef WITH_GPUS
    if (owners == Owners::gpu) return feedline::nccl_communicator(std::move(end), flags_.device(replica));
#endif
    return end;
  }

  const Flags flags_;
  int machines_ = 1;
  Ends ends_, leaders_;
  std::thread server_;
};

/// Trains one replica. Returns the sum of the steps' losses for each epoch.
std::vector<double> train(const Flags& flags, feedline::Feeder& feeder, Replicas& replicas, int replica) {
  const auto network = network_of(flags, replica);
  const auto training = replicas.training(replica, *network);
  feedline::LossScale scale(flags.precision == DType::float32 ? 1 : 1024);
  std::vector<double> losses;
  for (int epoch = 0; epoch < flags.epochs; epoch++) {
    while (auto batch = feeder.next(replica)) {
      network->pass(batch, scale.value(), [&](size_t v) { training->ready(v); });
      scale.update(training->step(scale.value()));
    }
    losses.push_back(network->take_loss());
  }
  return losses;
}

feedline::Pipeline pipeline_of(const Flags& flags) {
  auto pipeline = feedline::load_pipeline(flags.pipeline).with("batch.global_batch_size", std::to_string(flags.batch));
  if (!flags.gpus) return pipeline;
  // A GPU uses these tensors without a conversion, so they need the network's precision.
  for (const char* output : {"output.board.dtype", "output.flags.dtype"})
    pipeline = pipeline.with(output, feedline::name(flags.precision));
  return pipeline;
}

int run(const Flags& flags) {
  feedline::Options options;
  options.devices.clear();
  for (int replica = 0; replica < flags.replicas; replica++) options.devices.push_back(flags.device(replica));
  feedline::Feeder feeder(pipeline_of(flags), options);
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
        replicas.leave(replica);
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
  std::printf("the feed was ready in %.2f %% of next()\n", 100 * report.data_readiness_ratio);
  return 0;
}

template <typename T>
void one_of(CLI::Option* option, const std::vector<std::pair<std::string, T>>& values) {
  std::string names;
  for (const auto& [name, value] : values) names += (names.empty() ? "" : " | ") + name;
  option->transform(CLI::CheckedTransformer(values).description(""))->option_text(names);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a small network on chess positions, on several replicas.");
  app.add_option("pipeline", flags.pipeline, "The pipeline, with outputs board, flags and score")->required();
  app.add_option("--replicas", flags.replicas, "The number of replicas, which divide each step")
      ->check(CLI::Range(1, 64));
  app.add_option("--epochs", flags.epochs, "The number of epochs")->check(CLI::PositiveNumber);
  app.add_option("--batch", flags.batch, "The rows of a step, over all replicas")->check(CLI::PositiveNumber);
  app.add_option("--rate", flags.descent.rate, "The learning rate");
  one_of<Mode>(app.add_option("--mode", flags.mode, "How replicas share their gradients"),
               {{"replicated", Mode::replicated},
                {"parameter_server", Mode::parameter_server},
                {"distributed_replicated", Mode::distributed_replicated},
                {"asynchronous", Mode::asynchronous}});
  one_of<DType>(app.add_option("--precision", flags.precision,
                               "The dtype of weights and gradients; the master copies are float32"),
                {{"float32", DType::float32}, {"float16", DType::float16}, {"bfloat16", DType::bfloat16}});
#ifdef WITH_GPUS
  app.add_flag("--gpus", flags.gpus,
               "Compute on GPUs, replica R on GPU R; with --owners host, replicas may share a GPU, except in "
               "distributed_replicated");
  one_of<Owners>(app.add_option("--owners", flags.owners, "Where gradients from GPUs are summed and applied"),
                 {{"gpu", Owners::gpu}, {"host", Owners::host}});
#endif
  CLI11_PARSE(app, argc, argv);
  try {
    return run(flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
