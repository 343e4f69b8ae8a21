// What a split is to do, and how far it is: a small file beside the shards, `.NAME.split.json`. So a run that was
// killed goes on where it was, and one with other inputs or options is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tool/common/json.h"
#include "tool/common/record_map.h"
#include "tool/common/shard_names.h"

namespace feedline::cli {

/// What decides every byte of the result, but the inputs.
struct SplitOptions {
  std::string name;
  std::optional<uint64_t> shards, shard_bytes;  // one of them
  bool gzip = false;
  bool skip_bad = false;
  bool shuffle = false;
  uint64_t seed = 0;
};

/// The buckets of a shuffle. A unit of work is some shards and some buckets with the same records: one bucket with one
/// or more shards, or one shard with several buckets.
struct Buckets {
  uint64_t shards_per_unit = 1, buckets_per_unit = 1;
  std::vector<uint64_t> bytes;  // of each file
};

struct SplitJob {
  SplitOptions options;
  std::vector<FileIdentity> inputs;

  // Known when the records have been counted:
  RecordMap map{{}};
  uint64_t shards = 1;
  std::vector<Json> bad;  // what was skipped

  // Known when the records lie in their buckets:
  std::optional<Buckets> buckets;

  std::string shard(uint64_t i) const { return shard_name(options.name, i, shards, options.gzip); }
  uint64_t begin(uint64_t shard) const { return shard_begin(shard, shards, map.records()); }
};

/// Of a folder and the shards' name.
std::string job_path(const std::string& folder, const std::string& name);

/// Replaces the file, or leaves it as it was. Throws Error io_error.
void save_job(const std::string& path, const SplitJob& job);

/// The job that is under way, or done; empty: there is no file. Throws Error io_error, naming the file, and
/// bad_pipeline where it is another job than `wanted`, with what differs.
std::optional<SplitJob> load_job(const std::string& path, const SplitJob& wanted);

}  // namespace feedline::cli
