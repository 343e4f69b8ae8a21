// What it costs to go on near the end of a large epoch, beside near its beginning:
// resume_bench [--rounds N] [--records N] [--data DIR]
//
// Warm page cache, indexes kept. In each round every mode is gone on with at 1 % and at 99 % of its epoch, in turn:
// from before the Feeder is made and set to its state to the first batch. bench/README.md says what is wanted.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/records.h"
#include "measure.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;

constexpr int files = 16;

void make_data(const std::string& dir, uint64_t records) {
  if (fs::exists(dir)) return;
  fs::create_directories(dir + ".new");
  std::string record(229, 'x');  // a chess position's size
  for (int f = 0; f < files; f++) {
    RecordWriter writer(fmt::format("{}.new/part-{:05}", dir, f));
    for (uint64_t i = 0; i < records / files; i++) {
      record.replace(0, 16, fmt::format("{:016}", i * files + static_cast<uint64_t>(f)));
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

double resume_ms(const Pipeline& pipeline, const std::string& state) {
  return 1e3 * seconds([&] {
           Feeder feeder(pipeline);
           feeder.set_state(state);
           const Batch batch = feeder.next();
         });
}

int run(int argc, char** argv) {
  int rounds = 11;
  uint64_t records = 8'000'000;
  std::string data = fs::temp_directory_path() / "feedline-bench";
  CLI::App app("What it costs to go on with an epoch.", "resume_bench");
  app.add_option("--rounds", rounds, "measurements of each");
  app.add_option("--records", records, "in all, of 229 bytes");
  app.add_option("--data", data, "where the data is made, about 2 GB")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const std::string plain = fmt::format("{}/resume-{}", data, records);
  make_data(plain, records);
  const auto pipeline = [&](const std::string& more) {
    return parse_pipeline(
        "source { files: 'part-*' record_type: RAW } feature { name: 'record' dtype: BYTES length: 229 } "
        "batch { global_batch_size: 1024 } " +
            more,
        plain);
  };
  std::vector<Mode> modes = {
      {"file order", pipeline("")},
      {"BLOCK, 10,000 samples", pipeline("shuffle { buffer_size: 10000 }")},
      {"GLOBAL", pipeline("shuffle { mode: GLOBAL }")},
      {"BLOCK, 1,000,000 samples", pipeline("shuffle { buffer_size: 1000000 } memory { limit: '2GiB' }")},
  };
  for (int round = -1; round < rounds; round++)  // the first makes the indexes
    for (Mode& mode : modes) {
      std::string early, late;
      {
        const Feeder feeder(mode.pipeline);
        early = feeder.get_state(feeder.steps_per_epoch() / 100);
        late = feeder.get_state(feeder.steps_per_epoch() * 99 / 100);
      }
      const double first = resume_ms(mode.pipeline, early), last = resume_ms(mode.pipeline, late);
      if (round < 0) continue;
      mode.at_1.push_back(first);
      mode.at_99.push_back(last);
    }
  bool good = true;
  fmt::print("{} records\n\n| order | at 1 %, ms | at 99 %, ms |  |\n|---|---|---|---|\n", records);
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
