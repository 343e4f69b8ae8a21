// A rank of mpi_feed_test, under mpirun: mpi_feed WHAT FOLDER [HOW]. Prints a line that ends in "ok" if all went as
// expected.
#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <thread>

#include "feedline/data_parallel.h"
#include "feedline/mpi_communicator.h"
#include "process_feed.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// The trainer's own communicators, which it uses beside the feed's.
struct Trainer {
  Ends machine, leaders;  // `machine`: all ranks, or each half of them; `leaders`: none, or the first rank of each half
};

std::unique_ptr<DataParallel> training_of(const std::string& how, Trainer trainer, std::vector<Variable> variables) {
  const Apply descend = [](size_t, std::span<float> value, std::span<const float> gradient) {
    for (size_t i = 0; i < value.size(); i++) value[i] -= 1e-5F * gradient[i];
  };
  if (how == "replicated") return replicated(trainer.machine, std::move(variables), descend);
  if (how == "parameter_server") return parameter_server(trainer.machine, std::move(variables), descend);
  return distributed_replicated(trainer.machine, trainer.leaders, std::move(variables), descend);
}

// Fits a line to the ids in a few steps. The ranks come to each step at different times.
std::vector<float> train(const Pipeline& pipeline, const Options& options, int rank, const std::string& how,
                         Trainer trainer) {
  std::vector<float> slope(3), bias(1), slope_gradient(3), bias_gradient(1);
  const auto training = training_of(how, std::move(trainer),
                                    {{"slope", slope, {slope_gradient.data(), DType::float32, {3}}},
                                     {"bias", bias, {bias_gradient.data(), DType::float32, {1}}}});
  Feeder feeder(pipeline, options);
  for (int step = 0; step < 12; step++) {
    Batch batch = feeder.next();
    if (!batch) batch = feeder.next();
    const auto x = batch.at("x").as<float>();
    const auto id = batch.at("id").as<int64_t>();
    std::fill(slope_gradient.begin(), slope_gradient.end(), 0.0F);
    bias_gradient[0] = 0;
    for (size_t row = 0; row < id.size(); row++) {
      float error = bias[0] - static_cast<float>(id[row]);
      for (size_t i = 0; i < 3; i++) error += slope[i] * x[3 * row + i];
      for (size_t i = 0; i < 3; i++) slope_gradient[i] += error * x[3 * row + i];
      bias_gradient[0] += error;
    }
    batch.release_on(Stream::host);
    std::this_thread::sleep_for(std::chrono::milliseconds((rank * 7 + step * 5) % 6));
    training->ready(1);
    training->ready(0);
    if (!training->step()) throw std::runtime_error("a gradient that is not finite");
  }
  slope.push_back(bias[0]);
  return slope;
}

// Does the same on four threads of this process, each of which reads its own rows.
std::vector<float> train_on_threads(const Pipeline& pipeline, const std::string& how) {
  constexpr int ranks = 4;
  const bool machines = how == "distributed_replicated";
  std::vector<Ends> ends, leaders;
  for (int machine = 0; machine < (machines ? 2 : 1); machine++)
    for (auto& end : communicators_between_threads(machines ? 2 : ranks)) ends.push_back(std::move(end));
  for (auto& end : communicators_between_threads(2)) leaders.push_back(std::move(end));
  std::vector<std::vector<float>> values(ranks);
  for (const std::string& thrown : side_by_side(ranks, [&](int rank) {
         Options options = of_rank({}, 1);
         options.rank = rank;
         options.world_size = ranks;
         const auto r = static_cast<size_t>(rank);
         values[r] = train(pipeline.with("distribute.mode", "SPLIT"), options, rank, how,
                           {std::move(ends[r]), machines && rank % 2 == 0 ? std::move(leaders[r / 2]) : nullptr});
       }))
    if (!thrown.empty()) throw std::runtime_error(thrown);
  for (const auto& value : values)
    if (value != values[0]) throw std::runtime_error("threads differ");
  return values[0];
}

// Trains with a communicator that is not the feed's, while the feed uses its own.
void trains(const std::string& folder, const std::string& how, const std::string& mode) {
  const Pipeline pipeline = pipeline_of(folder, mode);
  const Ends feeding = mpi_communicator();
  const int rank = feeding->rank();
  Trainer trainer;
  if (how == "distributed_replicated") {
    MPI_Comm machine, leaders;
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &machine);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &leaders);
    trainer.machine = mpi_communicator({.communicator = MPI_Comm_c2f(machine)});
    Ends between = mpi_communicator({.communicator = MPI_Comm_c2f(leaders)});
    if (rank % 2 == 0) trainer.leaders = std::move(between);
  } else {
    trainer.machine = mpi_communicator();
  }
  if (train(pipeline, of_rank(feeding, 1), rank, how, std::move(trainer)) != train_on_threads(pipeline, how))
    throw std::runtime_error("other values than on threads");
}

/// Returns the sum over the rows that are samples, without filler.
float sum_of_ids(const Batch& batch) {
  const auto id = batch.at("id").as<int64_t>();
  const auto ok = batch.at("ok").as<uint8_t>();
  float sum = 0;
  for (size_t row = 0; row < id.size(); row++) sum += ok[row] ? static_cast<float>(id[row]) : 0;
  return sum;
}

// Rank 0 adds up what the other ranks send, each its part of an epoch at its own pace. All of it must arrive, each
// update once.
void trains_asynchronously(const std::string& folder) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<Ends> pairs;  // one for each pair of the server and a worker
  for (int worker = 1; worker < ranks; worker++) {
    MPI_Comm pair;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 || rank == worker ? 0 : MPI_UNDEFINED, rank, &pair);
    if (pair != MPI_COMM_NULL) pairs.push_back(mpi_communicator({.communicator = MPI_Comm_c2f(pair)}));
  }
  std::vector<float> sum(1), gradient(1);
  const std::vector<Variable> variables = {{"sum", sum, {gradient.data(), DType::float32, {1}}}};
  Options options = of_rank({}, 1);
  options.rank = rank == 0 ? 0 : rank - 1;
  options.world_size = rank == 0 ? 1 : ranks - 1;
  Feeder feeder(pipeline_of(folder, "SPLIT"), options);
  if (rank > 0) {
    const auto training = asynchronous(std::move(pairs), variables);
    for (int step = 0; const Batch batch = feeder.next(); step++) {
      gradient[0] = sum_of_ids(batch);
      std::this_thread::sleep_for(std::chrono::milliseconds((rank * 7 + step * 5) % 6));
      training->ready(0);
      if (!training->step()) throw std::runtime_error("a gradient that is not finite");
    }
    return;
  }
  const Served served = serve_parameters(
      pairs, 0, 1, variables, [](size_t, std::span<float> value, std::span<const float> by) { value[0] += by[0]; });
  float wanted = 0;
  while (const Batch batch = feeder.next()) wanted += sum_of_ids(batch);
  if (sum[0] != wanted) throw std::runtime_error("updates were lost");
  if (served.updates != static_cast<uint64_t>((ranks - 1) * feeder.steps_per_epoch()) || !served.lost.empty())
    throw std::runtime_error("other updates");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "", folder = argc > 2 ? argv[2] : "";
  int given = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    if (what == "outlive") {
      outlives(mpi_communicator({.timeout = silence}), folder);
    } else if (what == "kill" || what == "stop") {
      loses(mpi_communicator({.timeout = silence}), folder, what, "silent for 2 s");
    } else if (what == "asynchronous") {
      trains_asynchronously(folder);
    } else if (argc > 3) {
      trains(folder, what, argv[3]);
    } else {
      feeds(mpi_communicator(), folder, what);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    _exit(1);
  }
  say_ok(rank);
  if (what == "kill" || what == "stop") _exit(0);  // MPI cannot go on after a failure; see mpi_communicator.h
  MPI_Finalize();
}
