// Resharding: writes the records of TFRecord files into shards, in their order or in a random one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tool/common/json.h"
#include "tool/reshard/split_job.h"

namespace feedline::cli {

struct SplitResult {
  uint64_t shards = 0;
  uint64_t kept = 0;  // shards that an earlier run had completed
  uint64_t records = 0, framed_bytes = 0;
  std::vector<std::string> files;  // the names of the shards, without their folder
  std::vector<Json> bad;           // damage that was skipped: error_json() and skipped_bytes
};

/// Splits the inputs. It reads them twice: first to count the records, before anything is written, then to write. A
/// shard appears under its name when it is complete. A run that ends early, for whatever reason, leaves complete
/// shards; the same call then continues after them, and its result is the same, byte for byte. At most one run at a
/// time writes to a folder.
///
/// With a shuffle, the records are written to disk and read once more in between. The order is a function of the
/// inputs' records, their order, and the seed; it does not depend on shards, threads or memory.
///
/// `memory` is the number of bytes of records and tables held at once, in all threads. Reading and writing take more:
/// at most the longest record and a few MiB for each thread.
///
/// Throws Error: that of a bad record, unless bad records are skipped; io_error; bad_pipeline if the folder contains
/// something else; io_error if its disk is too full; stalled after an interrupt.
SplitResult run_split(const SplitOptions& options, const std::vector<std::string>& inputs, const std::string& folder,
                      uint64_t memory);

}  // namespace feedline::cli
