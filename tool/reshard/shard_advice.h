// Advises how many shards a data set should have.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace feedline::tool {

struct ShardAdvice {
  uint64_t readers = 1;
  uint64_t shards = 1;
  uint64_t shard_bytes = 0;
  std::vector<uint64_t> as_good;  // different numbers of shards that are as good, in ascending order
  std::string text;               // the advice for people, with its reasons; without a line end
};

/// Returns the advice. `readers` is the number of ranks times the number of files that each reads at once. `bytes` is
/// the size of the data in the form that the shards will have, plain or compressed.
ShardAdvice advise_shards(uint64_t bytes, uint64_t readers);

}  // namespace feedline::tool
