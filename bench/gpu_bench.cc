// Measures what feeding a GPU costs:
// gpu_bench [--gpu N] [--threads N] [--rounds N] [--batch N] [--json FILE] [--data DIR]
//
// Float32 boards from records shaped like chess positions; the page cache is warm. bench/results/gpus.md defines the metrics.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/machine.h"
#include "busy_kernel.h"
#include "feed_data.h"
#include "feedline/feeder.h"
#include "gpu/cuda/cuda_launch.h"
#include "gpu/device/memory.h"
#include "measure.h"
#include "on_cpus.h"
#include "tests/flowgraph/example_writer.h"

namespace feedline::bench {
namespace {

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

constexpr uint64_t records = 800'000;

// Returns a record as long as those of tests/golden/chess, which the machine with the GPU may lack. The values of its
// bits do not affect the time.
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

/// The rows per second that the CPUs could pack for the copy to the GPU if feedline cost nothing: bare loops
/// (ceilings.h) for reading, checksums, parsing and gathering, one after another.
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

/// A stream that measures how long the GPU takes for its work.
class TimedStream {
 public:
  TimedStream() {
    require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (cudaEvent_t& event : events_) require(cudaEventCreate(&event));
  }
  ~TimedStream() {
    cudaStreamSynchronize(stream_);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }
  TimedStream(const TimedStream&) = delete;
  TimedStream& operator=(const TimedStream&) = delete;

  cudaStream_t get() const { return stream_; }
  /// Returns the seconds that the GPU takes for the work that one call of give() enqueues on the stream. Averages over
  /// `repeats` calls.
  double time(int repeats, auto&& give) {
    give();
    require(cudaEventRecord(events_[0], stream_));
    for (int i = 0; i < repeats; i++) give();
    require(cudaEventRecord(events_[1], stream_));
    return between(0, 1) / repeats;
  }
  /// Returns the same, but has each call between two events of its own, as a feeder has each of its copies. The events
  /// take time, too.
  double time_each(auto&& give) {
    give();
    for (size_t i = 0; i < events_.size(); i += 2) {
      require(cudaEventRecord(events_[i], stream_));
      give();
      require(cudaEventRecord(events_[i + 1], stream_));
    }
    double sum = 0;
    for (size_t i = 0; i < events_.size(); i += 2) sum += between(i, i + 1);
    return sum / static_cast<double>(events_.size() / 2);
  }

 private:
  double between(size_t begin, size_t end) {
    require(cudaEventSynchronize(events_[end]));
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, events_[begin], events_[end]));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, 100> events_{};
};

/// A trainer's kernel, which takes about as long as it is told if the GPU does nothing else.
class Trainer {
 public:
  Trainer() {
    require(cudaMalloc(&memory_, bytes));
    require(cudaMemset(memory_, 0, bytes));
  }
  ~Trainer() { cudaFree(memory_); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  TimedStream& stream() { return stream_; }
  /// Sets how long run() takes.
  void take(double seconds) {
    blocks_ = 100'000;
    blocks_ = std::max(1u, static_cast<unsigned>(seconds / alone() * blocks_));
  }
  void run() { require(keep_busy(blocks_, memory_, bytes, stream_.get())); }
  /// Returns the seconds of run() without a feed.
  double alone() {
    return stream_.time(100, [&] { run(); });
  }

 private:
  static constexpr size_t bytes = size_t{256} << 20;  // more than caches hold
  TimedStream stream_;
  void* memory_ = nullptr;
  unsigned blocks_ = 0;
};

/// The cost of one batch without a feed. Each function returns seconds on the GPU.
class BareBatch {
 public:
  explicit BareBatch(size_t rows) : rows_(rows), packed_(rows * packed_row), unpacker_(spec()) {
    require(cudaMallocHost(&pinned_, packed_));
    require(cudaMalloc(&device_, packed_ + unpacker_.tables().size() + 256));
    tables_ = static_cast<std::byte*>(device_) + (packed_ + 255) / 256 * 256;
    require(cudaMemcpy(tables_, unpacker_.tables().data(), unpacker_.tables().size(), cudaMemcpyHostToDevice));
    require(cudaMalloc(&out_, ring * out_bytes()));
  }
  ~BareBatch() {
    cudaFreeHost(pinned_);
    cudaFree(device_);
    cudaFree(out_);
  }
  BareBatch(const BareBatch&) = delete;
  BareBatch& operator=(const BareBatch&) = delete;

  size_t packed_bytes() const { return packed_; }
  size_t out_bytes() const { return rows_ * board_floats * sizeof(float); }
  double copy() {
    return stream_.time_each(
        [&] { require(cudaMemcpyAsync(device_, pinned_, packed_, cudaMemcpyHostToDevice, stream_.get())); });
  }
  double unpack() {
    return stream_.time(50, [&] {
      const unpack::UnpackLaunch launch = unpacker_.launch({static_cast<std::byte*>(device_), board_bytes, next_out(),
                                                            board_floats * sizeof(float), static_cast<uint32_t>(rows_)},
                                                           tables_);
      require(gpu::launch_unpack({&launch, 1}, stream_.get()));
    });
  }
  double clear() {
    return stream_.time(50, [&] { require(cudaMemsetAsync(next_out(), 1, out_bytes(), stream_.get())); });
  }
  /// Copies as much from one half of the ring to the other as makes the GPU read and write as many bytes as unpack().
  double copy_on_gpu() {
    return stream_.time(50, [&] {
      const auto* from = static_cast<std::byte*>(out_) + (used_ + ring / 2) % ring * out_bytes();
      require(cudaMemcpyAsync(next_out(), from, (packed_ + out_bytes()) / 2, cudaMemcpyDeviceToDevice, stream_.get()));
    });
  }

 private:
  static constexpr size_t board_bytes = 194, board_floats = 8 * 8 * 24, packed_row = board_bytes + sizeof(int64_t);
  static constexpr size_t ring = 16;  // 16 batches of 25 MB: more than caches hold
  static unpack::UnpackSpec spec() {
    unpack::UnpackSpec spec;
    spec.width = 1;
    spec.shape = {8, 8, 24};
    spec.stride_bits = {8, 1, 64};
    spec.out = DType::float32;
    return spec;
  }
  std::byte* next_out() { return static_cast<std::byte*>(out_) + used_++ % ring * out_bytes(); }

  const size_t rows_, packed_;
  const unpack::DeviceUnpacker unpacker_;
  TimedStream stream_;
  void *pinned_ = nullptr, *device_ = nullptr, *out_ = nullptr;
  std::byte* tables_ = nullptr;
  size_t used_ = 0;
};

struct Step {
  double seconds, cpu_seconds;  // the CPU time is that of all threads of the process
};

/// Returns what a step takes after the first epoch, for a trainer that runs its kernel for each batch, or does nothing.
Step step_of(Feeder& feeder, Trainer& trainer, bool busy) {
  const cudaStream_t stream = trainer.stream().get();
  int steps = 0;
  const auto epoch = [&] {
    for (steps = 0;; steps++) {
      Batch batch = feeder.next(0, Stream::cuda(stream));
      if (!batch) break;
      if (busy) trainer.run();
      batch.release_on(Stream::cuda(stream));
    }
    require(cudaStreamSynchronize(stream));
  };
  epoch();
  double took_s = 0;
  const double cpu_s = cpu_seconds([&] { took_s = seconds(epoch); });
  return {took_s / steps, cpu_s / steps};
}

/// The values of a figure, one for each round. Their median must be at least `wanted`, or at most, if anything is.
struct Figure {
  const char *name, *what;
  std::optional<double> wanted = {};
  bool at_most = false;
  std::vector<double> values = {};
  bool good() const { return !wanted || (at_most ? median(values) <= *wanted : median(values) >= *wanted); }
};

int run(int argc, char** argv) {
  std::string json, dir = (std::filesystem::temp_directory_path() / "feedline-positions").string();
  int gpu = 0, rounds = 5, batch = 4096;
  size_t threads = usable_cpus();
  CLI::App app("What feeding a GPU costs.");
  app.add_option("--gpu", gpu, "CUDA ordinal");
  app.add_option("--threads", threads, "CPUs of the feed, and of the host's ceiling")->capture_default_str();
  app.add_option("--rounds", rounds, "Measurements, in turn")->check(CLI::PositiveNumber);
  app.add_option("--batch", batch, "Rows of a batch")->check(CLI::PositiveNumber);
  app.add_option("--json", json, "A file for the figures");
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
  BareBatch bare(static_cast<size_t>(batch));
  Trainer trainer;
  Figure link{"link", "GB/s of cudaMemcpyAsync of a batch's packed rows from pinned memory"},
      memory{"memset", "GB/s of cudaMemsetAsync of a batch's boards"},
      d2d{"d2d", "GB/s that cudaMemcpyAsync from the GPU to itself reads and writes"},
      copy{"copy/link", "of a bare cudaMemcpyAsync of as many pinned bytes", 0.90},
      unpack{"unpack/memset", "of cudaMemsetAsync of what it writes, in 16 batches in turn", 0.80},
      unpack_d2d{"unpack/d2d", "of the GPU's copy to itself that reads and writes as many bytes as unpacking does"},
      ceiling{"host", "million rows/s that the CPUs could have ready to be copied"},
      boards{"boards", "million rows/s of a consumer that does nothing else"},
      fed{"boards/host", "of what the host's CPUs could have ready to be copied", 0.60},
      cpu{"cpu", "ns of CPU time a row beside a trainer's kernel"},
      cpu_ratio{"cpu/bare", "of the CPU time that the bare loops would take for the row"},
      kernel{"kernel", "times (copy + unpack) is what a trainer's kernel takes"},
      exposed{"exposed", "of what is allowed beside a trainer's kernel: 5 % of (copy + unpack), or 3 us", 1, true};
  const std::vector<Figure*> figures = {&link,   &memory, &d2d, &copy,      &unpack, &unpack_d2d, &ceiling,
                                        &boards, &fed,    &cpu, &cpu_ratio, &kernel, &exposed};
  for (int round = 0; round < rounds; round++) {
    const double copy_s = bare.copy(), unpack_s = bare.unpack(), clear_s = bare.clear(), d2d_s = bare.copy_on_gpu();
    const double link_rate = static_cast<double>(bare.packed_bytes()) / copy_s;
    link.values.push_back(link_rate / 1e9);
    memory.values.push_back(static_cast<double>(bare.out_bytes()) / clear_s / 1e9);
    d2d.values.push_back(static_cast<double>(bare.packed_bytes() + bare.out_bytes()) / d2d_s / 1e9);
    unpack.values.push_back(clear_s / unpack_s);
    unpack_d2d.values.push_back(d2d_s / unpack_s);
    const double host_rate = host_ceiling.measure();
    ceiling.values.push_back(host_rate / 1e6);
    Feeder feeder(pipeline, {.devices = {cuda(gpu)}, .threads = static_cast<int>(threads)});
    const double step_s = step_of(feeder, trainer, false).seconds;
    boards.values.push_back(batch / step_s / 1e6);
    fed.values.push_back(batch / step_s / host_rate);
    const Report report = feeder.report();
    const StageReport& copies = report.stages.back();
    copy.values.push_back(static_cast<double>(report.uploaded_bytes) / copies.busy_s / link_rate);
    const double device_s = copies.busy_s / static_cast<double>(copies.messages) + unpack_s;
    // A trainer that is faster than the host would have to wait for the host.
    const double busy_s = std::max(2 * device_s, 1.25 * step_s);
    kernel.values.push_back(busy_s / device_s);
    trainer.take(busy_s);
    const double without = trainer.alone();
    const Step step = step_of(feeder, trainer, true);
    exposed.values.push_back((step.seconds - without) / std::max(0.05 * device_s, 3e-6));
    const double row_s = step.cpu_seconds / batch;
    cpu.values.push_back(row_s * 1e9);
    cpu_ratio.values.push_back(row_s * host_rate / static_cast<double>(threads));
  }
  fmt::print("{} rows in a batch, {} CPUs, {} rounds\n", batch, threads, rounds);
  bool good = true;
  nlohmann::json lines;
  for (const Figure* figure : figures) {
    const auto [low, high] = std::ranges::minmax(figure->values);
    const double value = median(figure->values);
    fmt::print("{:13} {:8.2f} ({:.2f}..{:.2f}) {}", figure->name, value, low, high, figure->what);
    nlohmann::json& line = lines.emplace_back(
        nlohmann::json{{"name", figure->name}, {"what", figure->what}, {"value", value}, {"min", low}, {"max", high}});
    if (figure->wanted) {
      fmt::print("; {} {:.2f} is wanted", figure->at_most ? "at most" : "at least", *figure->wanted);
      line[figure->at_most ? "at_most" : "at_least"] = *figure->wanted;
    }
    fmt::print("{}\n", figure->good() ? "" : "  MISSED");
    good = good && figure->good();
  }
  if (!json.empty())
    std::ofstream(json)
        << nlohmann::json{{"batch", batch}, {"cpus", threads}, {"rounds", rounds}, {"figures", lines}}.dump(1) << '\n';
  return good ? 0 : 1;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("gpu_bench", [&] { return feedline::bench::run(argc, argv); });
}
