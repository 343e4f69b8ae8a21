#include "feed_data.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "feedline/records.h"
#include "tests/flowgraph/example_writer.h"

namespace feedline::bench {

namespace write = test::wire;

std::string in_source(const std::string& path) {
  const char* const source = std::getenv("FEEDLINE_SOURCE");
  return fmt::format("{}/{}", source ? source : FEEDLINE_SOURCE, path);
}

std::string noise(Random& random, size_t bytes) {
  std::string all(bytes, '\0');
  for (size_t at = 0; at < bytes; at += 8) {
    const uint64_t word = random();
    std::memcpy(&all[at], &word, std::min<size_t>(8, bytes - at));
  }
  return all;
}

std::string chess(Random& random) {
  static const auto golden = [] {
    std::vector<std::string> positions;
    for (int shard = 0; shard < 3; shard++) {
      RecordReader reader(in_source(fmt::format("tests/golden/chess/main-0000{}-of-00003.tfrecord", shard)));
      for (Record record; reader.next(record) == ReadResult::record;)
        positions.emplace_back(reinterpret_cast<const char*>(record.payload.data()), record.payload.size());
    }
    return positions;
  }();
  return golden[random() % golden.size()];
}

std::string picture(Random& random, size_t bytes) {
  return write::example(write::entry("image", write::bytes_feature({noise(random, bytes)})) +
                        write::entry("label", write::int64_feature({static_cast<int64_t>(random() % 10)})));
}

std::string big(Random& random) {
  return write::example(write::entry("x", write::bytes_feature({noise(random, 2'830'000)})));
}

std::string click(Random& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(64);
  for (float& value : x) value = normal(random);
  std::vector<int64_t> ids(26);
  for (int64_t& id : ids) id = static_cast<int64_t>(random() % 1'000'000);
  return write::example(write::entry("ids", write::int64_feature(ids)) + write::entry("x", write::float_feature(x)) +
                        write::entry("y", write::int64_feature({static_cast<int64_t>(random() % 2)})));
}

void make_file(const std::string& file, uint64_t records, const std::function<std::string(Random&)>& record) {
  if (std::filesystem::exists(file)) return;
  Random random(1);
  RecordWriter writer(file);
  for (uint64_t i = 0; i < records; i++) writer.write(std::as_bytes(std::span<const char>(record(random))));
  writer.close();
}

}  // namespace feedline::bench
