// Compares rows that are stored in every record with rows that records look up in a table:
// lookup_bench [--rounds N] [--images N] [--data DIR]
//
// Each image has 5 or 50 captions. A record is a caption: its tokens, the image's name and, where rows are stored, the
// image's 2048 float32 features. It prints the bytes on disk, the memory plan and the time of an epoch: in file order
// and shuffled with a warm page cache, and in file order with a cold one. The medians of rounds count, in which all
// cases come in turn. bench/results/engine.md has the figures.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/records.h"
#include "measure.h"
#include "tests/flowgraph/example_writer.h"

namespace feedline::bench {
namespace {

namespace fs = std::filesystem;
namespace wire = feedline::test::wire;

constexpr size_t width = 2048;  // features of an image

std::string name_of(int image) { return fmt::format("COCO_train2014_{:012}.jpg", image * 7 + 9); }

std::vector<float> features_of(int image) {
  std::mt19937 random(static_cast<uint32_t>(image));
  std::vector<float> features(width);
  for (float& feature : features) feature = static_cast<float>(random() % 10000) / 1000;
  return features;
}

void write_records(const std::string& path, int images, int captions, bool stored) {
  if (fs::exists(path)) return;
  std::mt19937_64 random(1);
  RecordWriter writer(path + ".new");
  for (int image = 0; image < images; image++) {
    const std::string features = stored ? wire::entry("feats", wire::float_feature(features_of(image))) : "";
    for (int caption = 0; caption < captions; caption++) {
      std::vector<int64_t> tokens(8 + random() % 12);
      for (int64_t& token : tokens) token = static_cast<int64_t>(random() % 10000);
      const std::string record = wire::example(wire::entry("tokens", wire::int64_feature(tokens)) +
                                               wire::entry("image", wire::bytes_feature({name_of(image)})) + features);
      writer.write(std::as_bytes(std::span(record)));
    }
  }
  writer.close();
  fs::rename(path + ".new", path);
}

void write_table(const std::string& folder, int images) {
  std::ofstream table(folder + "/feats.npy", std::ios::binary), names(folder + "/names.txt");
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", images, width);
  header.resize(117, ' ');
  header = std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + '\n';
  table.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (int image = 0; image < images; image++) {
    const std::vector<float> features = features_of(image);
    table.write(reinterpret_cast<const char*>(features.data()), width * sizeof(float));
    names << name_of(image) << '\n';
  }
  if (!table.flush() || !names.flush()) throw std::runtime_error("the table cannot be written");
}

/// Removes a file from the page cache.
void cool(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
    throw std::runtime_error(path + " cannot be removed from the page cache");
  close(fd);
}

/// Returns the sum of the memory plan: "253.7 MiB".
std::string planned(const std::string& text) {
  const std::string from_sum_on = text.substr(text.find("memory   in all"));
  const std::string sum = from_sum_on.substr(0, from_sum_on.find(" of "));
  return sum.substr(sum.find_last_of(' ', sum.find_last_of(' ') - 1) + 1);
}

struct Case {
  std::string name;
  std::vector<std::string> files;  // what it reads
  Pipeline pipeline;
  std::vector<double> warm = {}, shuffled = {}, cold = {};  // seconds
  std::string memory = {};                                  // that is planned in file order

  uint64_t bytes() const {
    uint64_t bytes = 0;
    for (const std::string& file : files) bytes += fs::file_size(file);
    return bytes;
  }

  double epoch(const Pipeline& of) {
    Feeder feeder(of);
    if (memory.empty()) memory = planned(feeder.plan_text());
    return seconds([&] {
      while (feeder.next()) {
      }
    });
  }

  void round(bool counts) {
    for (const std::string& file : files) cool(file);
    const double first = epoch(pipeline), second = epoch(pipeline),
                 mixed = epoch(pipeline.overlaid("shuffle { buffer_size: 10000 }"));
    if (!counts) return;
    cold.push_back(first);
    warm.push_back(second);
    shuffled.push_back(mixed);
  }
};

int run(int argc, char** argv) {
  int rounds = 7, images = 4000;
  std::string data = fs::temp_directory_path() / "feedline-bench";
  CLI::App app("Rows in every record, and rows of a table.", "lookup_bench");
  app.add_option("--rounds", rounds, "measurements of each")->capture_default_str();
  app.add_option("--images", images, "each with 5 or 50 captions")->capture_default_str();
  app.add_option("--data", data, "where the data is made, about 2 GB")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const std::string folder = fmt::format("{}/lookup-{}", data, images), table = folder + "/feats.npy",
                    names = folder + "/names.txt";
  fs::create_directories(folder);
  write_table(folder, images);
  const std::string features =
      "output { name: 'feats' feature: 'image' lookup { table: 'feats.npy' keys_file: 'names.txt'";
  std::vector<Case> cases;
  for (const int captions : {5, 50}) {
    const auto add = [&](const std::string& how, bool stored, const std::string& more) {
      const std::string file = fmt::format("{}-{}.tfrecord", stored ? "stored" : "captions", captions);
      write_records(folder + "/" + file, images, captions, stored);
      const Pipeline pipeline = parse_pipeline(
          fmt::format("source {{ files: '{}' index {{}} }} feature {{ name: 'tokens' dtype: INT64 kind: FIXED_SEQUENCE "
                      "max_values: 32 }} batch {{ global_batch_size: 256 }} output {{ name: 'tokens' feature: 'tokens' "
                      "dtype: INT32 }} {}",
                      file, more),
          folder);
      std::vector<std::string> files = {folder + "/" + file};
      if (!stored) files.insert(files.end(), {table, names});
      cases.push_back({fmt::format("{} captions, {}", captions, how), std::move(files), pipeline});
    };
    add("rows in the records", true,
        "feature { name: 'feats' dtype: FLOAT32 shape: [2048] } output { name: 'feats' feature: 'feats' }");
    add("`lookup`", false, "feature { name: 'image' dtype: BYTES } " + features + " } }");
    add("`lookup`, resident", false, "feature { name: 'image' dtype: BYTES } " + features + " resident: true } }");
  }
  for (int round = -1; round < rounds; round++)  // the first round makes the indexes and is not counted
    for (Case& of : cases) of.round(round >= 0);
  fmt::print(
      "| {} images | on disk, MB | memory plan | epoch, s | shuffled, s | cold, s |\n|---|---|---|---|---|---|\n",
      images);
  for (const Case& of : cases)
    fmt::print("| {} | {:.0f} | {} | {:.3f} | {:.3f} | {:.3f} |\n", of.name, static_cast<double>(of.bytes()) / 1e6,
               of.memory, median(of.warm), median(of.shuffled), median(of.cold));
  return 0;
}

}  // namespace
}  // namespace feedline::bench

int main(int argc, char** argv) {
  return feedline::bench::guarded("lookup_bench", [&] { return feedline::bench::run(argc, argv); });
}
