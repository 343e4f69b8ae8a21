// The counting pass: every byte of a file read and verified, on all threads, and what it tells: the index.
//
// A plain file is cut into ranges, which are scanned side by side. Where a range's first record begins is a guess, a
// place that holds as one: it may lie inside a record that contains TFRecords. So a serial stitch follows the true
// records from offset 0 on and takes over what a range has found only from a place on at which a true record begins;
// between, and behind damage, it scans itself. Both checksums of every record taken over have been verified, and the
// records behind a place depend on nothing before it: so the result is that of one thread, to the last field.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/index/index.h"
#include "io/index/index_builder.h"

namespace feedline::io {

struct CountOptions {
  Compression compression = Compression::automatic;
  uint64_t record_limit = default_record_limit;
  uint64_t stride = default_stride;  // at least 1, at most largest_stride
  uint64_t range_bytes = 0;          // of the file, in one range; 0: by its size. For tests
};
/// What people may ask for: a record takes 16 bytes at least, and no group of strides overflows.
inline constexpr uint64_t smallest_stride = 16, largest_stride = uint64_t{1} << 40;

/// Told from time to time how many more bytes of the file were read; from any of the threads, several at once. May
/// throw, to stop.
using CountProgress = std::function<void(uint64_t bytes)>;

/// Told of each bad region before the next is looked for, in the order of the file, by one thread at a time. May throw,
/// to stop.
using CountDamage = std::function<void(const BadRegion& region)>;

/// Reads and verifies a whole file; blocking. Runs in the caller's task arena, on all of its threads where the file is
/// plain and large enough; may be called inside a parallel loop. Damage goes into `bad`, it does not throw, but for
/// more than most_bad_regions; Error io_error does. Memory, a thread: a few buffers of 256 KiB, or its longest record
/// (a false header inside a record may claim one of up to record_limit); and the index.
///
/// False starts cost a range at most twice its size, 16 MiB and record_limit; what is left then is for the stitch.
FileIndex count_records(const std::string& file, const CountOptions& options, const CountProgress& progress = {},
                        const CountDamage& damage = {});

/// What [begin, end) of a plain file tells by itself: the chains of valid records that begin in it, as its ranges found
/// them, ascending. Blocks, runs and tells as count_records().
std::vector<IndexBuilder> count_part(const std::string& file, uint64_t begin, uint64_t end, const CountOptions& options,
                                     const CountProgress& progress = {});

/// The index of a plain file out of the chains of all its parts, in order; wherever they were counted. Reads what no
/// chain is known to hold: nothing of a sound file whose records hold no records. Throws Error bad_pipeline where the
/// chains make an index that contradicts itself (io/index/index_check.h).
FileIndex join_parts(const std::string& file, const std::vector<IndexBuilder>& chains, const CountOptions& options,
                     const CountDamage& damage = {});

/// Throws where one bad region more than `known` is too many for an index: most_bad_regions.
void check_bad_regions(size_t known, const BadRegion& next, const std::string& file);

}  // namespace feedline::io
