// Data sets of SequenceExamples for the tests of the feeder. A record's content is a function of its number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data.h"

namespace feedline::test {

/// The lists of record `id`: `id` % 5 steps of the pair (id, step); `id` % 4 steps, of which step s has s numbers; `id`
/// % 3 strings; always two frames of 4 bytes.
inline std::string sequence_sample(int64_t id) {
  const auto list = [](const std::string& key, const std::vector<std::string>& steps) {
    std::string content;
    for (const std::string& step : steps) content += wire::delimited(1, step);
    return wire::entry(key, content);
  };
  std::vector<std::string> pairs, numbers, strings, frames;
  for (int64_t s = 0; s < id % 5; s++)
    pairs.push_back(wire::float_feature({static_cast<float>(id), static_cast<float>(s)}));
  for (int64_t s = 0; s < id % 4; s++) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < s; i++) values.push_back(100 * id + 10 * s + i);
    numbers.push_back(wire::int64_feature(values));
  }
  for (int64_t s = 0; s < id % 3; s++)
    strings.push_back(wire::bytes_feature(std::vector<std::string>(static_cast<size_t>(s + 1), std::to_string(id))));
  for (int64_t s = 0; s < 2; s++)
    frames.push_back(wire::bytes_feature({std::string(4, static_cast<char>('a' + (id + s) % 26))}));
  return wire::delimited(1, wire::entry("id", wire::int64_feature({id}))) +
         wire::delimited(
             2, list("pairs", pairs) + list("numbers", numbers) + list("strings", strings) + list("frames", frames));
}

// One feature of each kind.
inline const std::string sequence_features =
    "feature { name: 'id' dtype: INT64 } "
    "feature { name: 'pairs' dtype: FLOAT32 where: FEATURE_LIST kind: FIXED_SEQUENCE shape: 2 "
    "  default_value { float32_value: -1 } } "
    "feature { name: 'numbers' dtype: INT64 where: FEATURE_LIST kind: RAGGED } "
    "feature { name: 'strings' dtype: BYTES where: FEATURE_LIST kind: VARIABLE } "
    "feature { name: 'frames' dtype: BYTES where: FEATURE_LIST shape: 2 length: 4 } ";
inline const std::string sequence_outputs =
    "output { name: 'id' feature: 'id' } output { name: 'pairs' dtype: FLOAT16 feature: 'pairs' } "
    "output { name: 'numbers' dtype: INT32 feature: 'numbers' } output { name: 'strings' feature: 'strings' } "
    "output { name: 'frames' feature: 'frames' } ";

/// A folder with files part-0.tfrecord, ...; file i holds sizes[i] records, numbered across all files.
class SequenceData {
 public:
  explicit SequenceData(const std::vector<int64_t>& sizes) {
    int64_t count = 0;
    for (size_t f = 0; f < sizes.size(); f++) {
      std::vector<std::string> records;
      for (int64_t i = 0; i < sizes[f]; i++) records.push_back(sequence_sample(count++));
      write_records(dir_.file("part-" + std::to_string(f) + ".tfrecord"), records);
    }
  }
  const TempDir& dir() const { return dir_; }

  /// Returns a pipeline with the source, followed by `more`.
  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline("source { files: 'part-*.tfrecord' record_type: SEQUENCE_EXAMPLE } " + more, dir_.path());
  }

 private:
  TempDir dir_;
};

}  // namespace feedline::test
