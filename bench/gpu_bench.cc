// What feeding a GPU costs: gpu_bench [--gpu N] [--threads N] [--rounds N] [--batch N] [--data DIR]
//
// Float32 boards out of records in the shape of chess positions; page cache warm. bench/README.md defines the metrics.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/machine.h"
#include "feed_data.h"
#include "feedline/feeder.h"
#include "gpu/memory.h"
#include "measure.h"
#include "on_cpus.h"
#include "tests/flowgraph/example_writer.h"

namespace feedline::bench {
namespace {

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

constexpr uint64_t records = 800'000;

// As long as the golden ones, which need not be on the machine with the GPU: what its bits are does not matter to time.
std::string position(Random& random) {
  namespace write = test::wire;
  return write::example(write::entry("d", write::bytes_feature({noise(random, 194)})) +
                        write::entry("s", write::int64_feature({static_cast<int64_t>(random() % 20'000) - 10'000})));
}

Pipeline pipeline_of(const std::string& file, int batch) {
  return parse_pipeline(
      fmt::format("source {{ files: '{}' index {{}} }} feature {{ name: 'd' dtype: BYTES length: 194 }} "
                  "feature {{ name: 's' dtype: INT64 }} output {{ name: 'score' feature: 's' }} "
                  "output {{ name: 'board' dtype: FLOAT32 feature: 'd' unpack_bits {{ shape: [8, 8, 24] }} }} "
                  "batch {{ global_batch_size: {} }}",
                  file, batch));
}

/// Rows a second that the CPUs could have ready to be copied, if feedline cost nothing: what packed rows take, one
/// after another.
class HostCeiling {
 public:
  HostCeiling(const std::string& file, Cpus cpus, size_t batch) : cpus_(cpus), batch_(batch) {
    for (size_t part = 0; part < cpus.size(); part++) {
      const gpu::Memory& ring = rings_.emplace_back(3 * batch * (194 + sizeof(int64_t)));
      workers_.emplace_back(file, records, part, cpus.size(), ring.bytes());
    }
  }
  double measure() {
    double time = 0;
    for (const Loop& loop :
         {Loop(read), Loop(crc), Loop([](Worker& worker) { return walk(worker.hot.views, worker.found); }),
          Loop([&](Worker& worker) { return gather<194, 0>(worker, batch_); })})
      time += 1 / rate_of_loop(loop, workers_, cpus_);
    return 1 / time;
  }

 private:
  const Cpus cpus_;
  const size_t batch_;
  std::vector<gpu::Memory> rings_;
  std::vector<Worker> workers_;
};

/// A trainer's stream, and the work that it gives it.
class Trainer {
 public:
  Trainer() {
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    require(cudaMalloc(&memory_, bytes));
    step();
    wait();
    unit_s_ = seconds([&] {
                for (int i = 0; i < 100; i++) step();
                wait();
              }) /
              100;
  }
  ~Trainer() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
    cudaFree(memory_);
  }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// How often it has to clear its memory to be busy for so long, once at least.
  int repeats_of(double step_s) const { return std::max(1, static_cast<int>(step_s / unit_s_ + 0.5)); }
  void train(int repeats) {
    for (int i = 0; i < repeats; i++) step();
  }
  void wait() { require(cudaStreamSynchronize(stream_)); }
  Stream stream() const { return Stream::cuda(stream_); }

 private:
  static constexpr size_t bytes = size_t{16} << 20;
  void step() { require(cudaMemsetAsync(memory_, 1, bytes, stream_)); }
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  double unit_s_ = 0;
};

/// Seconds a step, behind the first epoch.
double step_seconds(Feeder& feeder, Trainer& trainer, int repeats) {
  int steps = 0;
  const auto epoch = [&] {
    for (steps = 0;; steps++) {
      Batch batch = feeder.next();
      if (!batch) break;
      batch.ready_on(trainer.stream());
      trainer.train(repeats);
      batch.release_on(trainer.stream());
    }
    trainer.wait();
  };
  epoch();
  return seconds(epoch) / steps;
}

double train_seconds(Trainer& trainer, int repeats) {
  constexpr int steps = 200;
  return seconds([&] {
           for (int i = 0; i < steps; i++) trainer.train(repeats);
           trainer.wait();
         }) /
         steps;
}

double link_rate() {
  constexpr size_t bytes = size_t{256} << 20;
  void *pinned = nullptr, *device = nullptr;
  require(cudaMallocHost(&pinned, bytes));
  require(cudaMalloc(&device, bytes));
  require(cudaMemcpy(device, pinned, bytes, cudaMemcpyHostToDevice));
  const double took = seconds([&] { require(cudaMemcpy(device, pinned, bytes, cudaMemcpyHostToDevice)); });
  cudaFree(device);
  cudaFreeHost(pinned);
  return static_cast<double>(bytes) / took;
}

int run(int argc, char** argv) {
  std::string dir = (std::filesystem::temp_directory_path() / "feedline-positions").string();
  int gpu = 0, rounds = 5, batch = 4096;
  size_t threads = usable_cpus();
  CLI::App app("What feeding a GPU costs.");
  app.add_option("--gpu", gpu, "CUDA ordinal");
  app.add_option("--threads", threads, "CPUs of the feed, and of the host's ceiling")->capture_default_str();
  app.add_option("--rounds", rounds, "Measurements, in turn")->check(CLI::PositiveNumber);
  app.add_option("--batch", batch, "Rows of a batch")->check(CLI::PositiveNumber);
  app.add_option("--data", dir, "Where 196 MB of records are, or are made");
  CLI11_PARSE(app, argc, argv);
  if (const Gpus gpus = visible_gpus(); gpus.count <= gpu) {
    fmt::print("skipped: {}\n", gpus.count == 0 ? gpus.why : fmt::format("there are {} GPUs", gpus.count));
    return 77;
  }
  require(cudaSetDevice(gpu));
  std::filesystem::create_directories(dir);
  const std::string file = dir + "/positions.tfrecord";
  make_file(file, records, position);
  const Pipeline pipeline = pipeline_of(file, batch);
  const std::vector<int> cpus = choose_cpus(threads);
  pin_all(cpus);
  HostCeiling host_ceiling(file, cpus, static_cast<size_t>(batch));
  std::vector<double> link, copy, ceiling, rows, of_ceiling, exposed;
  Trainer trainer;
  for (int round = 0; round < rounds; round++) {
    link.push_back(link_rate());
    ceiling.push_back(host_ceiling.measure());
    Feeder feeder(pipeline, {.devices = {cuda(gpu)}, .threads = static_cast<int>(threads)});
    const double alone = step_seconds(feeder, trainer, 0);
    rows.push_back(batch / alone);
    of_ceiling.push_back(rows.back() / ceiling.back());
    const Report report = feeder.report();
    copy.push_back(static_cast<double>(report.bytes_copied) / report.stages.back().busy_s);
    const int repeats = trainer.repeats_of(2 * alone);
    const double with_feed = step_seconds(feeder, trainer, repeats);
    exposed.push_back((with_feed - train_seconds(trainer, repeats)) / alone);
  }
  fmt::print("link     {:8.2f} GB/s   a bare copy of 256 MiB of pinned memory\n", median(link) / 1e9);
  fmt::print("copy     {:8.2f} GB/s   {:.2f} of the link, in copies of {} rows\n", median(copy) / 1e9,
             median(copy) / median(link), batch);
  fmt::print("host     {:8.2f} M/s    what {} CPUs could have ready to be copied\n", median(ceiling) / 1e6, threads);
  fmt::print("boards   {:8.2f} M/s    {:.2f} of that, fed as fast as it goes\n", median(rows) / 1e6,
             median(of_ceiling));
  fmt::print("exposed  {:8.2f}        of that step, behind a trainer of twice its time\n", median(exposed));
  return 0;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("gpu_bench", [&] { return feedline::bench::run(argc, argv); });
}
