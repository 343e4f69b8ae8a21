// Stores what a split must do, and how far it is, in a small file beside the shards: `.NAME.split.json`. With this file
// a run continues where a killed run stopped, and a run with different inputs or options is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tool/common/json.h"
#include "tool/common/record_map.h"
#include "tool/common/shard_names.h"

namespace feedline::tool {

/// The options that decide, together with the inputs, every byte of the result.
struct SplitOptions {
  std::string name;
  std::optional<uint64_t> shards, shard_bytes;  // one of the two is set; shard_bytes is the approximate size of a shard
  bool gzip = false;
  bool skip_bad = false;
  bool shuffle = false;
  uint64_t seed = 0;
  uint64_t record_limit = io::default_record_limit;  // bytes of a payload; a longer record is bad
};

/// Returns the number of shards for records that take `framed_bytes` bytes as TFRecords.
uint64_t shards_of(const SplitOptions& options, uint64_t framed_bytes) noexcept;

/// The buckets of a shuffle. A unit of work is a group of shards, and the buckets that hold the records of these
/// shards. It has either one bucket and one or more shards, or one shard and several buckets.
struct Buckets {
  uint64_t shards_per_unit = 1, buckets_per_unit = 1;
  std::vector<uint64_t> bytes;  // bytes of each bucket's file
};

/// The work of one split.
struct SplitJob {
  SplitOptions options;
  std::vector<FileIdentity> inputs;

  // Known after the records have been counted:
  RecordMap map{{}, io::default_record_limit};
  uint64_t shards = 1;
  std::vector<Json> bad;  // damage that was skipped: error_json() and skipped_bytes

  // Known after the records have been written to buckets:
  std::optional<Buckets> buckets;

  /// Returns the file name of a shard.
  std::string shard(uint64_t i) const { return shard_name(options.name, i, shards, options.gzip); }
  /// Returns the number of a shard's first record, in the order of the result.
  uint64_t begin(uint64_t shard) const { return shard_begin(shard, shards, map.records()); }
};

/// Returns the path of the job's file, for the folder and the name of the shards.
std::string job_path(const std::string& folder, const std::string& name);

/// Writes the job to the file: replaces the file completely, or leaves it as it was. Throws Error io_error.
void save_job(const std::string& path, const SplitJob& job);

/// Returns the job in the file, which may be under way or done; nullopt if there is no file. Throws Error io_error if
/// the file cannot be read or is damaged. Throws Error bad_pipeline if the file has a different job than `wanted`; the
/// message names the difference.
std::optional<SplitJob> load_job(const std::string& path, const SplitJob& wanted);

}  // namespace feedline::tool
