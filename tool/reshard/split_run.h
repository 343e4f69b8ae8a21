// Resharding: writes the records of TFRecord files into shards, in their order or in a random one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tool/common/json.h"
#include "tool/reshard/split_job.h"

namespace feedline::tool {

struct SplitResult {
  uint64_t shards = 0;
  uint64_t kept = 0;  // shards that an earlier run had completed
  uint64_t records = 0, framed_bytes = 0;
  std::vector<std::string> files;  // the names of the shards, without their folder
  std::vector<Json> bad;           // damage that was skipped: error_json() and skipped_bytes
};

/// Splits the inputs. Reads them twice: first to count the records, before anything is written, then to write. A shard
/// appears under its name when it is complete. A run that ends early, for whatever reason, leaves complete shards. The
/// same call then writes the missing shards, and all shards are, byte for byte, as after an undisturbed run. At most
/// one run at a time writes to a folder.
///
/// With a shuffle, the records are also written to disk and read from there before they are written to shards. The
/// order is a function of the inputs' records, their order, and the seed; it does not depend on shards, threads or
/// memory.
///
/// `memory` bounds the bytes of records and tables that all threads of a shuffle hold at once. Reading and writing take
/// more: at most the longest record and a few MiB for each thread. If `memory` is too small for the write buffers of
/// enough buckets, the buckets are larger, and the table of a bucket (16 bytes for each of its records) may exceed
/// `memory`.
///
/// Throws Error bad_pipeline if the inputs have bad records that are not skipped, or if the folder has files with the
/// shards' names that this split has not written; io_error if a file cannot be read or written, or changes, or if the
/// disk is too full; stalled after an interrupt.
SplitResult run_split(const SplitOptions& options, const std::vector<std::string>& inputs, const std::string& folder,
                      uint64_t memory);

}  // namespace feedline::tool
