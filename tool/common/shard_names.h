// The names of shards, and which records each of them holds.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace feedline::tool {

/// Returns a shard's file name: "train-00000-of-00016.tfrecord". Compressed shards end in ".gz", because programs such
/// as Beam's ReadFromTFRecord and TFX tell by the name that they must inflate a file.
inline std::string shard_name(const std::string& name, uint64_t shard, uint64_t shards, bool gzip = false) {
  return fmt::format("{}-{:05}-of-{:05}.tfrecord{}", name, shard, shards, gzip ? ".gz" : "");
}

/// Returns a pattern for a pipeline that matches all shards.
inline std::string shard_pattern(const std::string& name, uint64_t shards, bool gzip = false) {
  return fmt::format("{}-*-of-{:05}.tfrecord{}", name, shards, gzip ? ".gz" : "");
}

/// Returns floor(shard * records / shards), the first record of a shard: shard i holds the records [shard_begin(i),
/// shard_begin(i + 1)). So each shard has records / shards records, or one more. Exact for fewer than 2^32 shards.
constexpr uint64_t shard_begin(uint64_t shard, uint64_t shards, uint64_t records) noexcept {
  return shard * (records / shards) + shard * (records % shards) / shards;
}

inline constexpr uint64_t most_shards = 99'999;  // because names have five digits for this number

}  // namespace feedline::tool
