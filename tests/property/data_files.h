// Files for random pipelines: records of very different sizes, plain and gzip, intact and damaged.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "feedline/batch.h"

namespace feedline::test {

/// The data sets. Those without damage come first.
enum DataSetNumber : int {
  uniform,
  large_first,
  large_last,
  many_small_files,
  one_outlier,
  tiny,
  many_blocks,
  known_damage,
  hidden_damage
};
inline constexpr int sound_sets = known_damage;

/// Writes the files of all sets into a folder: SET-NUMBER.tfrecord, and for sets without damage also
/// SET-NUMBER.tfrecord.gz with the same records.
void write_data_files(const std::string& folder);

/// Damages records of `hidden_damage` without a visible change of the files. Call it after the files have been counted.
void hide_damage(const std::string& folder);

/// Returns a pattern for the files of a set, relative to the folder.
std::string pattern_of(int set, bool compressed);

/// Returns whether the row of a batch equals record `id`. Record `id` has: "id"; "h", 16 bytes; "clip", id / 37; "b",
/// any number of bytes; "v", id % 5 numbers.
bool is_record(const Batch& batch, int64_t row, int64_t id, bool variable);

}  // namespace feedline::test
