// Measures what it costs to start over many shards, and to resume near the end of a large epoch compared with near its
// beginning: resume_bench [--rounds N] [--records N] [--data DIR]
//
// The page cache is warm and the indexes exist. The time is that from the construction of the Feeder to the first
// batch. Each round resumes every mode at 1 % and at 99 % of its epoch, in turn. bench/results/engine.md says what is wanted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/records.h"
#include "measure.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;

void make_data(const std::string& dir, uint64_t files, uint64_t records) {
  if (fs::exists(dir)) return;
  fs::create_directories(dir + ".new");
  std::string record(229, 'x');  // the size of a chess position
  for (uint64_t f = 0; f < files; f++) {
    RecordWriter writer(fmt::format("{}.new/part-{:05}", dir, f));
    for (uint64_t i = 0; i < records / files; i++) {
      record.replace(0, 16, fmt::format("{:016}", i * files + f));
      writer.write(std::as_bytes(std::span(record)));
    }
    writer.close();
  }
  fs::rename(dir + ".new", dir);
}

struct Mode {
  const char* name;
  Pipeline pipeline;
  std::vector<double> at_1 = {}, at_99 = {};  // milliseconds
};

Pipeline pipeline_over(const std::string& dir, const std::string& more) {
  return parse_pipeline(
      "source { files: 'part-*' record_type: RAW index {} } feature { name: 'record' dtype: BYTES length: 229 } "
      "batch { global_batch_size: 1024 } " +
          more,
      dir);
}

double first_batch_ms(const Pipeline& pipeline, const std::string& state = "") {
  std::optional<Feeder> feeder;  // outside, so that its destruction is not timed
  return 1e3 * seconds([&] {
           feeder.emplace(pipeline);
           if (!state.empty()) feeder->set_state(state);
           feeder->next();
         });
}

/// Measures and prints how long the start over `shards` shards takes. Returns whether the median is at most
/// `wanted_ms`.
bool start_over(const std::string& data, uint64_t shards, double wanted_ms, int rounds) {
  const std::string dir = fmt::format("{}/start-{}", data, shards);
  make_data(dir, shards, shards * 16);
  const Pipeline pipeline = pipeline_over(dir, "");
  first_batch_ms(pipeline);  // makes the indexes
  std::vector<double> times;
  for (int round = 0; round < rounds; round++) times.push_back(first_batch_ms(pipeline));
  const bool good = median(times) <= wanted_ms;
  fmt::print("| {} | {:.1f} | {:.1f} | {:.0f} | {} |\n", shards, median(times), *std::ranges::min_element(times),
             wanted_ms, good ? "good" : "TOO SLOW");
  return good;
}

int run(int argc, char** argv) {
  int rounds = 11;
  uint64_t records = 8'000'000;
  std::string data = fs::temp_directory_path() / "feedline-bench";
  CLI::App app("What it costs to go on with an epoch.", "resume_bench");
  app.add_option("--rounds", rounds, "measurements of each");
  app.add_option("--records", records, "in all, of 229 bytes");
  app.add_option("--data", data, "where the data is made, about 3 GB")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  fmt::print("| shards | first batch, ms | fastest | wanted |  |\n|---|---|---|---|---|\n");
  bool good = start_over(data, 1'000, 50, rounds);
  good = start_over(data, 100'000, 1000, rounds) && good;

  const std::string plain = fmt::format("{}/resume-{}", data, records);
  make_data(plain, 16, records);
  const auto pipeline = [&](const std::string& more) { return pipeline_over(plain, more); };
  std::vector<Mode> modes = {
      {"file order", pipeline("")},
      {"BLOCK, 10,000 samples", pipeline("shuffle { buffer_size: 10000 }")},
      {"GLOBAL", pipeline("shuffle { mode: GLOBAL }")},
      {"BLOCK, 1,000,000 samples", pipeline("shuffle { buffer_size: 1000000 } memory { limit: '2GiB' }")},
  };
  for (int round = -1; round < rounds; round++)  // the first round makes the indexes and is not counted
    for (Mode& mode : modes) {
      std::string early, late;
      {
        const Feeder feeder(mode.pipeline);
        early = feeder.get_state(feeder.steps_per_epoch() / 100);
        late = feeder.get_state(feeder.steps_per_epoch() * 99 / 100);
      }
      const double first = first_batch_ms(mode.pipeline, early), last = first_batch_ms(mode.pipeline, late);
      if (round < 0) continue;
      mode.at_1.push_back(first);
      mode.at_99.push_back(last);
    }
  fmt::print("\n{} records\n\n| order | at 1 %, ms | at 99 %, ms |  |\n|---|---|---|---|\n", records);
  for (const Mode& mode : modes) {
    const double first = median(mode.at_1), last = median(mode.at_99);
    const bool near = std::abs(last - first) <= std::max(20.0, 0.2 * first);
    good = good && near;
    fmt::print("| {} | {:.1f} | {:.1f} | {} |\n", mode.name, first, last, near ? "good" : "TOO FAR APART");
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("resume_bench", [&] { return feedline::bench::run(argc, argv); });
}
