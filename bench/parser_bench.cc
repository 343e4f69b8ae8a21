// Compares the Example parser with its ceiling: walk() of ceilings.h, a bare loop over the wire format that trusts the
// records, knows their features by one letter and keeps no state.
//
// Both parse 256 KiB of records (at least 8) again and again, in turn. The records are in the cache, as in a feed,
// which has just computed their checksums. The program prints the medians in ns per record, and the ratio of the
// parser's rate to the ceiling's.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "ceilings.h"
#include "feed_data.h"
#include "flowgraph/parse/example_parser.h"
#include "measure.h"
#include "tests/flowgraph/example_writer.h"

namespace feedline::bench {
namespace {

namespace write = test::wire;
struct Format {
  const char* name;
  std::vector<flow::FeatureSpec> features;
  std::function<std::string(Random&)> record;
};

flow::FeatureSpec feature(const std::string& key, DType dtype, Shape shape = {}) {
  flow::FeatureSpec spec;
  spec.name = spec.key = key;
  spec.dtype = dtype;
  spec.shape = shape;
  return spec;
}

/// Returns a score in centipawns, as chess engines give it.
int64_t score(Random& random) { return static_cast<int64_t>(random() % 4001) - 2000; }

/// The number of columns of a table. Each is a feature.
constexpr size_t table_columns = 40;
std::string column(size_t i) { return fmt::format("column_{}", i); }

std::vector<Format> formats() {
  std::vector<flow::FeatureSpec> columns;
  for (size_t i = 0; i < table_columns; i++) columns.push_back(feature(column(i), DType::int64));
  const std::vector<flow::FeatureSpec> position = {feature("d", DType::bytes), feature("s", DType::int64)};
  const std::vector<flow::FeatureSpec> image = {feature("image", DType::bytes), feature("label", DType::int64)};
  return {
      {"chess", position,
       [](Random& random) {
         return write::example(write::entry("d", write::bytes_feature({noise(random, 194)})) +
                               write::entry("s", write::int64_feature({score(random)})));
       }},
      {"chess, score first", position,
       [](Random& random) {
         return write::example(write::entry("s", write::int64_feature({score(random)}, false)) +
                               write::entry("d", write::bytes_feature({noise(random, 194)})));
       }},
      {"image-raw", image, [](Random& random) { return picture(random, 3072); }},
      {"image-large", image, [](Random& random) { return picture(random, 200000); }},
      {"image-encoded", image, [](Random& random) { return picture(random, 2000 + random() % 2000); }},
      {"floats",
       {feature("x", DType::float32, {64}), feature("ids", DType::int64, {26}), feature("y", DType::int64)},
       [](Random& random) {
         std::vector<float> floats(64);
         for (float& value : floats) value = static_cast<float>(random() % 1000);
         std::vector<int64_t> numbers(26);
         for (int64_t& value : numbers) value = static_cast<int64_t>(random() >> (44 + random() % 20));
         return write::example(write::entry("x", write::float_feature(floats)) +
                               write::entry("ids", write::int64_feature(numbers)) +
                               write::entry("y", write::int64_feature({static_cast<int64_t>(random() % 2)})));
       }},
      {"table", columns,
       [](Random& random) {
         std::string row;
         for (size_t i = 0; i < table_columns; i++)
           row +=
               write::entry(column(i), write::int64_feature({static_cast<int64_t>(random() >> (44 + random() % 20))}));
         return write::example(row);
       }},
  };
}

int compare(const Format& format) {
  Random random(1);
  std::string file;
  std::vector<size_t> sizes;
  while (file.size() < (256 << 10) || sizes.size() < 8) {
    const std::string record = format.record(random);
    file += record;
    sizes.push_back(record.size());
  }
  std::vector<io::RecordView> records;
  const std::byte* at = reinterpret_cast<const std::byte*>(file.data());
  for (size_t size : sizes) {
    records.push_back({at, static_cast<uint32_t>(size), 0});
    at += size;
  }
  const size_t n = records.size();
  Columns columns(n);
  const flow::ExampleParser parser(format.features);
  std::vector<std::byte> memory(parser.arena_bound(n, file.size()));
  std::vector<flow::RowError> errors;
  uint64_t hits = 0;

  const size_t rounds = 1 + 2'000'000 / n;
  std::vector<double> bare, parsed;
  for (int i = 0; i < 9; i++) {
    bare.push_back(1e9 * seconds([&] {
                     for (size_t round = 0; round < rounds; round++) walk(records, columns);
                   }));
    parsed.push_back(1e9 * seconds([&] {
                       for (size_t round = 0; round < rounds; round++) {
                         flow::Arena arena(memory);
                         flow::ExampleParser::Session session(parser, static_cast<uint32_t>(n), arena);
                         session.parse(records, errors);
                         hits = session.layout_hits();
                       }
                     }));
  }
  const double records_parsed = static_cast<double>(rounds * n);
  const double bare_ns = median(bare) / records_parsed, parser_ns = median(parsed) / records_parsed;
  fmt::print("{:20} {:7} B  walk {:7.1f} ns  parser {:7.1f} ns  {:4.0f} %  layout hits {:5.1f} %\n", format.name,
             file.size() / n, bare_ns, parser_ns, 100 * bare_ns / parser_ns,
             100 * static_cast<double>(hits) / static_cast<double>(n));
  return errors.empty() ? 0 : 1;
}

}  // namespace
}  // namespace feedline::bench

/// Usage: parser_bench [FORMAT]
int main(int argc, char** argv) {
  int failed = 0;
  for (const auto& format : feedline::bench::formats()) {
    if (argc < 2 || std::string(argv[1]) == format.name) failed |= feedline::bench::compare(format);
  }
  return failed;
}
