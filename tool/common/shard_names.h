// Shards: what each is called and which records it gets.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace feedline::cli {

/// "train-00000-of-00016.tfrecord", and ".gz" behind it where the shards are compressed: programs that go by names
/// (Beam's ReadFromTFRecord, TFX) look for that.
inline std::string shard_name(const std::string& name, uint64_t shard, uint64_t shards, bool gzip = false) {
  return fmt::format("{}-{:05}-of-{:05}.tfrecord{}", name, shard, shards, gzip ? ".gz" : "");
}

/// A pattern that matches all of them, for a pipeline.
inline std::string shard_pattern(const std::string& name, uint64_t shards, bool gzip = false) {
  return fmt::format("{}-*-of-{:05}.tfrecord{}", name, shards, gzip ? ".gz" : "");
}

/// floor(shard * records / shards): shard i holds records [shard_begin(i), shard_begin(i + 1)), so that all have
/// records / shards of them, some one more. Exact for fewer than 2^32 shards.
constexpr uint64_t shard_begin(uint64_t shard, uint64_t shards, uint64_t records) noexcept {
  return shard * (records / shards) + shard * (records % shards) / shards;
}

inline constexpr uint64_t most_shards = 99'999;  // five digits

}  // namespace feedline::cli
