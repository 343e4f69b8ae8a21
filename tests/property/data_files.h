// Files for random pipelines: records of very different sizes, plain and gzip, sound and damaged.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "feedline/batch.h"

namespace feedline::test {

/// Data sets; the sound ones first.
enum DataSetNumber : int {
  uniform,
  large_first,
  large_last,
  many_small_files,
  one_outlier,
  tiny,
  known_damage,
  hidden_damage
};
inline constexpr int sound_sets = known_damage;

/// Writes all of them into a folder: SET-NUMBER.tfrecord, and the same as SET-NUMBER.tfrecord.gz where they are sound.
void write_data_files(const std::string& folder);

/// Damages records of `hidden_damage` so that the files look untouched: to be called when they have been counted.
void hide_damage(const std::string& folder);

/// The files of a set, as a pattern relative to the folder.
std::string pattern_of(int set, bool compressed);

/// Whether the row of a batch is what the record `id` holds. Record `id` has: "id"; "h", 16 bytes; "clip", id / 37;
/// "b", any number of bytes; "v", id % 5 numbers.
bool is_record(const Batch& batch, int64_t row, int64_t id, bool variable);

}  // namespace feedline::test
