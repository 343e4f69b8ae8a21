// Measures feeding a gzip file whose records a cache has kept, beside inflating it in every epoch:
// gzip_bench [--rounds N] [--threads N,...] [--json FILE] [--data DIR]
//
// Every figure is a rate in records/s; on one CPU, of CPU time, so that other programs matter little. Each round feeds
// the file in each way once, in turn, on one CPU, and on each number of them that --threads gives. The first epoch of a feed, which
// fills its cache, is not measured. bench/results/pictures.md defines each metric.
#include <fmt/format.h>
#include <oneapi/tbb/info.h>

#include <algorithm>
#include <filesystem>

#include "feed_data.h"
#include "feedline/feeder.h"
#include "feedline/records.h"
#include "measure.h"
#include "on_cpus.h"
#include "rounds.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t records = 400'000;  // of 229 bytes each

class Bench {
 public:
  Bench(std::string folder, const std::vector<size_t>& counts)
      : folder_(std::move(folder)), cpus_(choose_cpus(std::ranges::max(counts))), tables_(counts, "records/s") {
    pin_all(cpus_);
    tbb::info::default_concurrency();  // oneTBB counts the CPUs only once, so it must see all of them now
    fs::create_directories(folder_);
    make_file(file("plain"), records, chess);
    if (fs::exists(file("gzip"))) return;
    RecordReader reader(file("plain"));
    RecordWriter writer(file("gzip"), {.compression = Compression::gzip});
    for (Record record; reader.next(record) == ReadResult::record;) writer.write(record.payload);
    writer.close();
  }

  void round() {
    measure(Cpus(cpus_).first(1), tables_.one);
    for (CpuTables::Many& on : tables_.many) measure(Cpus(cpus_).first(on.cpus), on.rates);
  }

  bool print(const std::string& json_file) const { return tables_.print(json_file); }

 private:
  std::string file(const std::string& kind) const { return fs::absolute(folder_) / ("records-" + kind + ".tfrecord"); }

  Pipeline pipeline(const std::string& kind, const std::string& where) const {
    const Pipeline bare = load_pipeline(in_source("bench/peers/chess.textproto"))
                              .with("batch.global_batch_size", "1024")
                              .with("source.files", file(kind));
    if (where.empty()) return bare;
    const Pipeline cached = bare.with("cache.where", where).with("cache.limit", "1GiB").with("memory.limit", "4GiB");
    return where == "DISK" ? cached.with("cache.dir", folder_) : cached;
  }

  void measure(Cpus cpus, Table& table) {
    pin_all(cpus);
    const auto rate_of = [&](const std::string& kind, const std::string& where) {
      Options options;
      options.threads = static_cast<int>(cpus.size());
      Feeder feeder(pipeline(kind, where), options);
      epoch(feeder);
      if (cpus.size() > 1) return rate([&] { return epoch(feeder); });
      return rate([&] { return epoch(feeder); }, [](auto&& timed) { return cpu_seconds(timed); });
    };
    const double inflated = rate_of("gzip", ""), plain = rate_of("plain", "");
    const double in_memory = rate_of("gzip", "MEMORY"), on_disk = rate_of("gzip", "DISK");
    table.add("gzip, inflated in every epoch", inflated, inflated, 0);
    table.add("gzip, kept in memory / (inflated)", in_memory, inflated, 5);
    table.add("gzip, kept on a disk / (inflated)", on_disk, inflated, 0);
    table.add("gzip, kept in memory / (plain file in the page cache)", in_memory, plain, 0);
    table.add("gzip, kept on a disk / (plain file in the page cache)", on_disk, plain, 0);
  }

  const std::string folder_;
  const std::vector<int> cpus_;
  CpuTables tables_;
};

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("gzip_bench", [&] {
    return feedline::bench::run_rounds<feedline::bench::Bench>(
        argc, argv, "Rates of feeding a gzip file that a cache has kept", "220 MB");
  });
}
