// The Example parser beside its ceiling: a bare walk over the wire format that trusts the records, knows their features
// by one letter and keeps no state.
//
// A round parses 256 KiB of records (at least 8), which lie in the cache as they do after their checksum was computed.
// The two alternate; medians. Prints ns per record and the parser's share of the ceiling's rate.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "flowgraph/example_parser.h"
#include "measure.h"
#include "tests/flowgraph/example_writer.h"

namespace feedline::bench {
namespace {

namespace write = test::wire;
using Random = std::mt19937_64;

/// What the bare walk fills: the features of all the formats here, by the first letter of their keys.
struct Columns {
  std::vector<flow::BytesRef> bytes;  // "d"
  std::vector<int64_t> number;        // "s"
  std::vector<float> floats;          // "f": 64 of them
  std::vector<int64_t> numbers;       // "i": 26 of them
};

uint64_t varint(const uint8_t*& p) {
  uint64_t byte = *p++, value = byte & 0x7f;
  for (int shift = 7; byte >= 0x80; shift += 7) {
    byte = *p++;
    value |= (byte & 0x7f) << shift;
  }
  return value;
}

/// Fields in any order, lists of one packed run or one value; no check but that nothing is left over.
bool walk(const io::RecordView& record, size_t row, Columns& out) {
  const auto* p = reinterpret_cast<const uint8_t*>(record.data);
  const uint8_t* const end = p + record.size;
  if (*p++ != 0x0a || varint(p) != static_cast<uint64_t>(end - p)) return false;
  while (p < end) {
    if (*p++ != 0x0a) return false;
    const uint64_t size = varint(p);
    const uint8_t* const behind = p + size;
    if (*p++ != 0x0a || *p++ != 1) return false;
    const uint8_t key = *p++;
    if (*p++ != 0x12) return false;
    varint(p);
    const uint8_t kind = *p++;
    varint(p);
    const uint8_t tag = *p++;
    if (tag == 0x0a) {
      const uint64_t run = varint(p);
      if (kind == 0x0a && key == 'd') {
        out.bytes[row] = {reinterpret_cast<const std::byte*>(p), run};
        p += run;
      } else if (kind == 0x12 && key == 'f' && run == 256) {
        std::memcpy(&out.floats[64 * row], p, 256);
        p += run;
      } else if (kind == 0x1a && key == 's') {
        out.number[row] = static_cast<int64_t>(varint(p));
      } else if (kind == 0x1a && key == 'i') {
        for (size_t i = 0; i < 26; i++) out.numbers[26 * row + i] = static_cast<int64_t>(varint(p));
      }
    } else if (tag == 0x08 && kind == 0x1a && key == 's') {
      out.number[row] = static_cast<int64_t>(varint(p));
    }
    if (p != behind) return false;
  }
  return true;
}

struct Format {
  const char* name;
  std::vector<flow::FeatureSpec> features;
  std::function<std::string(Random&)> record;
};

flow::FeatureSpec feature(const char* key, DType dtype, Shape shape = {}) {
  flow::FeatureSpec spec;
  spec.name = spec.key = key;
  spec.dtype = dtype;
  spec.shape = shape;
  return spec;
}

std::string random_bytes(Random& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

/// Centipawns, as engines give them.
int64_t score(Random& random) { return static_cast<int64_t>(random() % 4001) - 2000; }

std::string picture(Random& random, size_t size) {
  return write::example(write::entry("d", write::bytes_feature({random_bytes(random, size)})) +
                        write::entry("s", write::int64_feature({static_cast<int64_t>(random() % 1000)})));
}

std::vector<Format> formats() {
  const std::vector<flow::FeatureSpec> bytes_and_number = {feature("d", DType::bytes), feature("s", DType::int64)};
  return {
      {"chess", bytes_and_number,
       [](Random& random) {
         return write::example(write::entry("d", write::bytes_feature({random_bytes(random, 194)})) +
                               write::entry("s", write::int64_feature({score(random)})));
       }},
      {"chess, score first", bytes_and_number,
       [](Random& random) {
         return write::example(write::entry("s", write::int64_feature({score(random)}, false)) +
                               write::entry("d", write::bytes_feature({random_bytes(random, 194)})));
       }},
      {"image-raw", bytes_and_number, [](Random& random) { return picture(random, 3072); }},
      {"image-large", bytes_and_number, [](Random& random) { return picture(random, 200000); }},
      {"image-encoded", bytes_and_number, [](Random& random) { return picture(random, 2000 + random() % 2000); }},
      {"floats",
       {feature("f", DType::float32, {64}), feature("i", DType::int64, {26}), feature("s", DType::int64)},
       [](Random& random) {
         std::vector<float> floats(64);
         for (float& value : floats) value = static_cast<float>(random() % 1000);
         std::vector<int64_t> numbers(26);
         for (int64_t& value : numbers) value = static_cast<int64_t>(random() >> (44 + random() % 20));
         return write::example(write::entry("f", write::float_feature(floats)) +
                               write::entry("i", write::int64_feature(numbers)) +
                               write::entry("s", write::int64_feature({static_cast<int64_t>(random() % 2)})));
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
  Columns columns{std::vector<flow::BytesRef>(n), std::vector<int64_t>(n), std::vector<float>(64 * n),
                  std::vector<int64_t>(26 * n)};
  const flow::ExampleParser parser(format.features);
  std::vector<std::byte> memory(parser.arena_bound(n, file.size()));
  std::vector<flow::RowError> errors;
  size_t bad = 0;
  uint64_t hits = 0;

  const size_t rounds = 1 + 2'000'000 / n;
  std::vector<double> bare, parsed;
  for (int i = 0; i < 9; i++) {
    bare.push_back(1e9 * seconds([&] {
                     for (size_t round = 0; round < rounds; round++) {
                       for (size_t row = 0; row < n; row++) bad += !walk(records[row], row, columns);
                     }
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
  return bad == 0 && errors.empty() ? 0 : 1;
}

}  // namespace
}  // namespace feedline::bench

/// parser_bench [FORMAT]
int main(int argc, char** argv) {
  int failed = 0;
  for (const auto& format : feedline::bench::formats()) {
    if (argc < 2 || std::string(argv[1]) == format.name) failed |= feedline::bench::compare(format);
  }
  return failed;
}
