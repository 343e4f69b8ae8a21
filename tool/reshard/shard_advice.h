// How many shards a data set should have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace feedline::cli {

struct ShardAdvice {
  uint64_t readers = 1;
  uint64_t shards = 1;
  uint64_t shard_bytes = 0;
  std::vector<uint64_t> as_good;  // other numbers, ascending
  std::string text;               // all of it for people, with the reasons; no line end
};

/// readers: ranks times the files that each reads at once. bytes: of the data as TFRecords.
ShardAdvice advise_shards(uint64_t bytes, uint64_t readers);

}  // namespace feedline::cli
