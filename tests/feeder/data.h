// Data sets for the tests of the feeder. A record's content is a function of its number, so a wrong record can be
// identified.
#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/records.h"
#include "flowgraph/example_writer.h"
#include "support/temp_dir.h"

namespace feedline::test {

/// Returns record `id`: "id" int64, "x" 3 floats, "b" 5 bytes, "v" id % 4 int64 values, "t" id % 3 byte strings; "p" is
/// equal to "v", and "raw" to "b". `more` has further entries of the record.
inline std::string sample(int64_t id, const std::string& more = "") {
  const auto f = static_cast<float>(id);
  std::vector<int64_t> v;
  std::vector<std::string> t;
  for (int64_t i = 0; i < id % 4; i++) v.push_back(id * 10 + i);
  for (int64_t i = 0; i < id % 3; i++)
    t.push_back(std::string(static_cast<size_t>(id % 7 + i), static_cast<char>('a' + i)));
  std::string b(5, '\0');
  for (size_t i = 0; i < b.size(); i++) b[i] = static_cast<char>(id + static_cast<int64_t>(i));
  return wire::example(wire::entry("id", wire::int64_feature({id})) +
                       wire::entry("x", wire::float_feature({f, f / 2, -f})) +
                       wire::entry("b", wire::bytes_feature({b})) + wire::entry("v", wire::int64_feature(v)) +
                       wire::entry("t", wire::bytes_feature(t)) + wire::entry("p", wire::int64_feature(v, false)) +
                       wire::entry("raw", wire::bytes_feature({b})) + more);
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

inline void write_records(const std::string& file, const std::vector<std::string>& records,
                          Compression compression = Compression::none) {
  RecordWriter writer(file, {.compression = compression});
  for (const std::string& record : records) writer.write(bytes_of(record));
  writer.close();
}

/// A folder with files part-0.tfrecord, ...; file i holds sizes[i] samples. The samples are numbered across all files.
/// `more` returns further entries of a sample.
class Data {
 public:
  explicit Data(
      const std::vector<int64_t>& sizes, Compression compression = Compression::none,
      std::string (*more)(int64_t id) = [](int64_t) { return std::string(); }) {
    for (size_t f = 0; f < sizes.size(); f++) {
      std::vector<std::string> records;
      for (int64_t i = 0; i < sizes[f]; i++, count_++) records.push_back(sample(count_, more(count_)));
      write_records(path(f), records, compression);
    }
  }
  std::string path(size_t file) const {
    const std::string number = std::to_string(file);
    return dir_.file("part-" + std::string(3 - number.size(), '0') + number + ".tfrecord");
  }
  int64_t count() const { return count_; }
  const TempDir& dir() const { return dir_; }

  /// Returns a pipeline with the source and the feature id, followed by `more`. A GPU has three batches, so that all
  /// are used again in few steps.
  Pipeline pipeline(const std::string& more) const {
    const Pipeline text =
        parse_pipeline("source { files: 'part-*.tfrecord' } feature { name: 'id' dtype: INT64 } " + more, dir_.path());
    return more.find("device_prefetch") == std::string::npos ? text.with("parallelism.device_prefetch", "2") : text;
  }

 private:
  TempDir dir_;
  int64_t count_ = 0;
};

inline std::string batch_of(int64_t size, const std::string& policy) {
  return "batch { global_batch_size: " + std::to_string(size) + " last_batch_policy: " + policy + " } ";
}

/// What one replica was given in an epoch, batch by batch.
struct Epoch {
  std::vector<std::vector<int64_t>> ids;  // the ids of the valid rows
  std::vector<int64_t> rows, valid;
  std::vector<int64_t> all() const {
    std::vector<int64_t> out;
    for (const auto& batch : ids) out.insert(out.end(), batch.begin(), batch.end());
    return out;
  }
};

inline void add_batch(Epoch& epoch, const Batch& batch) {
  const auto ids = batch.at("id").as<int64_t>();
  const auto valid = batch.at("@valid").as<uint8_t>();
  epoch.rows.push_back(batch.rows());
  epoch.valid.push_back(batch.valid_count());
  epoch.ids.emplace_back();
  for (size_t i = 0; i < ids.size(); i++)
    if (valid[i]) epoch.ids.back().push_back(ids[i]);
}

/// Reads one epoch of every replica. This thread serves the replicas in turn.
inline std::vector<Epoch> read_epoch(Feeder& feeder) {
  std::vector<Epoch> epochs(static_cast<size_t>(feeder.replicas()));
  for (;;)
    for (int r = 0; r < feeder.replicas(); r++) {
      auto batch = feeder.next(r);
      if (batch) {
        add_batch(epochs[static_cast<size_t>(r)], batch);
        continue;
      }
      for (int other = 1; other < feeder.replicas(); other++) feeder.next(other);
      return epochs;
    }
}

inline std::vector<int64_t> numbers(int64_t count, int64_t first = 0) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

inline Options replicas(int count) {
  Options options;
  options.devices.assign(static_cast<size_t>(count), host());
  return options;
}

}  // namespace feedline::test
