#include "property/data_files.h"

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/audit.h"
#include "feeder/damage.h"
#include "feedline/records.h"
#include "flowgraph/example_writer.h"

namespace feedline::test {
namespace {

constexpr const char* names[] = {"uniform", "large-first", "large-last",   "many-small",   "outlier",
                                 "tiny",    "many-blocks", "known-damage", "hidden-damage"};

std::string header_of(int64_t id) {
  std::string bytes(16, '\0');
  for (size_t word = 0; word < 2; word++) {
    const uint64_t value = mix64(static_cast<uint64_t>(id) * 2 + word);
    std::memcpy(bytes.data() + word * 8, &value, 8);
  }
  return bytes;
}

// Each byte is a function of the record and the place.
char body_byte(int64_t id, size_t at) { return static_cast<char>(static_cast<uint64_t>(id) * 31 + at * 7 + at / 256); }

std::string record(int64_t id, size_t body_size) {
  std::string body(body_size, '\0');
  for (size_t i = 0; i < body.size(); i++) body[i] = body_byte(id, i);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < id % 5; i++) values.push_back(id * 10 + i);
  return wire::example(wire::entry("id", wire::int64_feature({id})) +
                       wire::entry("h", wire::bytes_feature({header_of(id)})) +
                       wire::entry("clip", wire::int64_feature({id / 37})) +
                       wire::entry("b", wire::bytes_feature({body})) + wire::entry("v", wire::int64_feature(values)));
}

/// The sizes of the records' bodies, for each file of a set.
using Sizes = std::vector<std::vector<size_t>>;

Sizes sizes_of(int set) {
  std::mt19937_64 random(static_cast<uint64_t>(set) + 1);
  const auto between = [&](size_t least, size_t most) { return least + random() % (most - least + 1); };
  const auto scattered = [&](int octaves) {
    return between(1, size_t{2} << (random() % static_cast<uint64_t>(octaves)));
  };
  Sizes files;
  const auto add = [&](size_t count, auto size) {
    for (size_t i = 0; i < count; i++) files.back().push_back(size());
  };
  const auto file = [&] { files.emplace_back(); };
  switch (set) {
    case uniform:
      for (const size_t count : {700, 1, 1300}) file(), add(count, [] { return 60; });
      break;
    case large_first:
      for (int f = 0; f < 4; f++) file(), add(12, [&] { return between(10'000, 60'000); }), add(900, [] { return 20; });
      break;
    case large_last:
      file(), add(1200, [] { return 8; }), add(25, [&] { return between(5'000, 90'000); });
      file(), add(300, [&] { return between(1, 6'000); });
      break;
    case many_small_files:
      for (const size_t count : {40, 0, 3, 120, 1, 17, 64, 90, 5, 33, 0, 2})
        file(), add(count, [&] { return scattered(13); });
      break;
    case one_outlier:
      file(), add(500, [] { return 40; }), add(1, [] { return 700'000; }), add(600, [] { return 40; });
      break;
    case tiny:
      file(), add(7, [&] { return scattered(8); });
      file(), add(30, [&] { return scattered(8); });
      break;
    case many_blocks:  // each file is a block, so a shuffle buffer holds samples of many blocks
      for (int f = 0; f < 150; f++) file(), add(between(8, 16), [&] { return scattered(6); });
      break;
    default:
      for (const size_t count : {400, 250}) file(), add(count, [&] { return scattered(12); });
  }
  return files;
}

std::string name_of(int set, size_t file) { return fmt::format("{}-{:03}.tfrecord", names[set], file); }

void write_file(const std::string& path, int64_t first_id, const std::vector<size_t>& sizes, Compression compression) {
  RecordWriter writer(path, {.compression = compression});
  for (const size_t size : sizes) {
    const std::string bytes = record(first_id++, size);
    writer.write(std::as_bytes(std::span(bytes)));
  }
  writer.close();
}

// Flips one bit in the payload of each of these records.
void damage(const std::string& file, const std::vector<int64_t>& records) {
  std::vector<uint64_t> offsets;
  for (const int64_t number : records) offsets.push_back(offset_of(file, number));
  for (const uint64_t offset : offsets) flip(file, offset + 30);
}

}  // namespace

void write_data_files(const std::string& folder) {
  for (int set = uniform; set <= hidden_damage; set++) {
    int64_t id = set * 1'000'000;
    const Sizes files = sizes_of(set);
    for (size_t f = 0; f < files.size(); f++) {
      const std::string path = folder + "/" + name_of(set, f);
      write_file(path, id, files[f], Compression::none);
      if (set < sound_sets) write_file(path + ".gz", id, files[f], Compression::gzip);
      id += static_cast<int64_t>(files[f].size());
    }
  }
  damage(folder + "/" + name_of(known_damage, 0), {2, 100, 101, 399});
}

void hide_damage(const std::string& folder) { damage(folder + "/" + name_of(hidden_damage, 0), {3, 120, 121, 399}); }

std::string pattern_of(int set, bool compressed) {
  return fmt::format("{}-*.tfrecord{}", names[set], compressed ? ".gz" : "");
}

bool is_record(const Batch& batch, int64_t row, int64_t id, bool variable) {
  const auto at = static_cast<size_t>(row);
  const auto h = batch.at("h").as<const std::byte>().subspan(at * 16, 16);
  if (std::memcmp(h.data(), header_of(id).data(), 16) != 0) return false;
  if (!variable) return true;
  const auto value_splits = batch.at("v.row_splits").as<const int64_t>();
  const auto values = batch.at("v.values").as<const int64_t>();
  const int64_t count = value_splits[at + 1] - value_splits[at];
  if (count != id % 5) return false;
  for (int64_t i = 0; i < count; i++)
    if (values[static_cast<size_t>(value_splits[at] + i)] != id * 10 + i) return false;
  const auto splits = batch.at("b.row_splits").as<const int64_t>();
  const auto offsets = batch.at("b.offsets").as<const int64_t>();
  const auto bytes = batch.at("b.bytes").as<const char>();
  if (splits[at + 1] - splits[at] != 1) return false;
  const auto first = static_cast<size_t>(offsets[static_cast<size_t>(splits[at])]);
  const auto end = static_cast<size_t>(offsets[static_cast<size_t>(splits[at]) + 1]);
  if (end > bytes.size() || first > end) return false;
  for (size_t i = 0; i < end - first; i++)
    if (bytes[first + i] != body_byte(id, i)) return false;
  return true;
}

}  // namespace feedline::test
