// Compares the Example parser with its ceiling: walk() of ceilings.h, a bare loop over the wire format that trusts the
// records, knows their features by one letter and keeps no state.
//
// Both parse 256 KiB of records (at least 8) again and again, in turn. The records are in the cache, as in a feed,
// which has just computed their checksums. The program prints the medians in ns per record, and the ratio of the
// parser's rate to the ceiling's.
//
// Then it compares SequenceExamples with Examples that hold the same values, each feature in one list. Both are parsed
// in turn, in the same way; their times are CPU times.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ceilings.h"
#include "feed_data.h"
#include "flowgraph/parse/record_parser.h"
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

/// Records side by side: at least 256 KiB, and at least 8 of them.
struct Block {
  explicit Block(const std::function<std::string()>& record) {
    std::vector<size_t> sizes;
    while (file.size() < (256 << 10) || sizes.size() < 8) {
      const std::string next = record();
      file += next;
      sizes.push_back(next.size());
    }
    const std::byte* at = reinterpret_cast<const std::byte*>(file.data());
    for (size_t size : sizes) {
      records.push_back({at, static_cast<uint32_t>(size), 0});
      at += size;
    }
  }
  std::string file;
  std::vector<io::RecordView> records;
};

int compare(const Format& format) {
  Random random(1);
  const Block block([&] { return format.record(random); });
  const std::string& file = block.file;
  const std::vector<io::RecordView>& records = block.records;
  const size_t n = records.size();
  Columns columns(n);
  const auto parser = flow::example_parser(format.features);
  std::vector<std::byte> memory(parser->arena_bound(n, file.size()));
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
                         const auto session = parser->begin({static_cast<uint32_t>(n), file.size()}, arena);
                         session->parse(records, errors);
                         hits = session->layout_hits();
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

/// Values that steps have, written as the values of an Example or of a SequenceExample.
struct Steps {
  const char* name;
  flow::FeatureSpec in_example, in_list;
  /// Returns the encoded Feature of each step of a record, and the Feature with the values of all of them.
  std::function<std::pair<std::vector<std::string>, std::string>(Random&)> features;
};

Steps steps(const char* name, DType dtype, flow::FeatureKind kind, Shape shape,
            std::function<std::pair<std::vector<std::string>, std::string>(Random&)> features) {
  flow::FeatureSpec in_example = feature("values", dtype, shape);
  in_example.kind = kind;
  flow::FeatureSpec in_list = in_example;
  in_list.where = flow::Where::feature_list;
  return {name, in_example, in_list, std::move(features)};
}

/// Makes steps of `count()` values each; `encode` makes a Feature of values, and `value` a value.
template <typename T>
auto features_of(size_t steps, auto count, auto encode, auto value) {
  return [=](Random& random) {
    std::vector<std::string> each;
    std::vector<T> all;
    for (size_t step = 0; step < steps; step++) {
      std::vector<T> values(count(random));
      for (T& one : values) one = value(random);
      each.push_back(encode(values));
      all.insert(all.end(), values.begin(), values.end());
    }
    return std::pair(each, encode(all));
  };
}

std::vector<Steps> sequences() {
  const auto exactly = [](size_t count) { return [count](Random&) { return count; }; };
  const auto ints = [](const std::vector<int64_t>& values) { return write::int64_feature(values); };
  const auto floats = [](const std::vector<float>& values) { return write::float_feature(values); };
  const auto strings = [](const std::vector<std::string>& values) { return write::bytes_feature(values); };
  const auto token = [](Random& random) { return static_cast<int64_t>(random() % 50000); };
  const auto number = [](Random& random) { return static_cast<float>(random() % 1000); };
  using Kind = flow::FeatureKind;
  return {
      steps("30 frames of 1024 B", DType::bytes, Kind::fixed_sequence, {},
            features_of<std::string>(30, exactly(1), strings, [](Random& random) { return noise(random, 1024); })),
      steps("30 words", DType::bytes, Kind::fixed_sequence, {},
            features_of<std::string>(30, exactly(1), strings,
                                     [](Random& random) { return noise(random, 3 + random() % 9); })),
      steps("100 vectors of 40 floats", DType::float32, Kind::fixed_sequence, {40},
            features_of<float>(100, exactly(40), floats, number)),
      steps("100 floats", DType::float32, Kind::fixed_sequence, {},
            features_of<float>(100, exactly(1), floats, number)),
      steps("100 tokens", DType::int64, Kind::fixed_sequence, {}, features_of<int64_t>(100, exactly(1), ints, token)),
      steps("20 ragged lists of 0 to 19 tokens", DType::int64, Kind::ragged, {},
            features_of<int64_t>(
                20, [](Random& random) { return random() % 20; }, ints, token)),
  };
}

double parse(const flow::RecordParser& parser, const Block& block, std::vector<std::byte>& memory,
             std::vector<flow::RowError>& errors, size_t rounds) {
  return cpu_seconds([&] {
    for (size_t round = 0; round < rounds; round++) {
      flow::Arena arena(memory);
      const auto session = parser.begin({static_cast<uint32_t>(block.records.size()), block.file.size()}, arena);
      session->parse(block.records, errors);
    }
  });
}

int compare(const Steps& format) {
  const std::string label = write::entry("label", write::int64_feature({1}));
  Random random(1), again(1);
  const Block examples([&] { return write::example(label + write::entry("values", format.features(random).second)); });
  const Block sequences([&] {
    std::string list;
    for (const std::string& step : format.features(again).first) list += write::delimited(1, step);
    return write::delimited(1, label) + write::delimited(2, write::entry("values", list));
  });
  const auto example_parser = flow::example_parser({feature("label", DType::int64), format.in_example});
  const auto sequence_parser = flow::sequence_example_parser({feature("label", DType::int64), format.in_list});
  std::vector<std::byte> of_examples(example_parser->arena_bound(examples.records.size(), examples.file.size()));
  std::vector<std::byte> of_sequences(sequence_parser->arena_bound(sequences.records.size(), sequences.file.size()));
  std::vector<flow::RowError> errors;
  std::vector<double> example_ns, sequence_ns;
  const size_t rounds = 1 + 400'000 / examples.records.size();
  for (int i = 0; i < 9; i++) {
    example_ns.push_back(1e9 * parse(*example_parser, examples, of_examples, errors, rounds) /
                         static_cast<double>(rounds * examples.records.size()));
    sequence_ns.push_back(1e9 * parse(*sequence_parser, sequences, of_sequences, errors, rounds) /
                          static_cast<double>(rounds * sequences.records.size()));
  }
  const double example = median(example_ns), sequence = median(sequence_ns);
  const size_t example_bytes = examples.file.size() / examples.records.size(),
               sequence_bytes = sequences.file.size() / sequences.records.size();
  fmt::print("{:34} Example {:6} B {:8.1f} ns  SequenceExample {:6} B {:8.1f} ns  {:4.0f} % of its records/s\n",
             format.name, example_bytes, example, sequence_bytes, sequence, 100 * example / sequence);
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
  for (const auto& format : feedline::bench::sequences()) {
    if (argc < 2 || std::string(argv[1]) == format.name) failed |= feedline::bench::compare(format);
  }
  return failed;
}
