// Resharding: the records of TFRecord files into shards, in their order or in a random one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tool/common/json.h"
#include "tool/reshard/split_job.h"

namespace feedline::cli {

struct SplitResult {
  uint64_t shards = 0;
  uint64_t kept = 0;  // of them, whole from an earlier run
  uint64_t records = 0, framed_bytes = 0;
  std::vector<std::string> files;  // the shards, without their folder
  std::vector<Json> bad;           // what was skipped: to_json(Error), and skipped_bytes
};

/// Reads the inputs twice: to count, before anything is written, and to write. A shard appears under its name when it
/// is whole. A run that ends early, in whatever way, leaves whole shards, and the same call goes on behind them; its
/// result is then the same, byte for byte. At most one run at a time writes to a folder.
///
/// Shuffled, the records take the way of the disk once more. The order is a function of the inputs' records, their
/// order, and the seed; not of shards, threads or memory.
///
/// memory: bytes of records and tables held at once, in all threads; beyond it comes what reading and writing take, at
/// most the longest record and a few MiB for each thread.
///
/// Throws Error: bad records, unless they are to be skipped; io_error; bad_pipeline where the folder holds something
/// else, or its disk is too full; stalled when interrupted.
SplitResult run_split(const SplitOptions& options, const std::vector<std::string>& inputs, const std::string& folder,
                      uint64_t memory);

}  // namespace feedline::cli
