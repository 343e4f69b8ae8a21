// The counting pass: reads and verifies every byte of a file, on all threads, and makes the index of the file.
//
// A plain file is cut into ranges, which threads scan side by side. The thread of a range guesses where the first
// record of the range begins: at the first place that holds a valid record. The guess may be wrong, because that place
// may lie inside a record that contains TFRecords. Therefore a serial pass, the stitch, follows the true records from
// offset 0 on. Of a range it takes over only what comes after the first place at which a true record and a record of the
// range begin. Up to such a place, and after damage, the stitch scans the file itself. Both checksums of every record
// that is taken over have been verified, and the records after a place depend on nothing before it. So the result is
// the one that a single thread would have, in every field.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/index/index.h"
#include "io/index/index_builder.h"
#include "io/read/source.h"

namespace feedline::io {

/// Options for the counting of a file.
struct CountOptions {
  Compression compression = Compression::automatic;
  uint64_t record_limit = default_record_limit;  // bytes; a longer payload is damage (record_too_large)
  uint64_t stride = default_stride;              // bytes between index entries, 1 to largest_stride
  uint64_t range_bytes = 0;                      // bytes of a range; 0: chosen by the size of the file. For tests
};
/// The strides that users may ask for. A record has at least 16 bytes, and with the largest stride the size of a group
/// of strides does not overflow.
inline constexpr uint64_t smallest_stride = 16, largest_stride = uint64_t{1} << 40;

/// A callback that is called from time to time with the number of bytes of the file that were read since the last call.
/// Any of the counting threads may call it, and several of them at the same time. It may throw, which ends the
/// counting.
using CountProgress = std::function<void(uint64_t bytes)>;

/// A callback that is called with each bad region, in the order of the file, before the next region is searched for.
/// One thread at a time calls it. It may throw, which ends the counting.
using CountDamage = std::function<void(const BadRegion& region)>;

/// Reads and verifies a whole file, and returns its index. Blocks until it is done.
///
/// Runs in the caller's task arena, on all of its threads if the file is plain and large enough. May be called inside a
/// parallel loop. Damage does not throw but goes into FileIndex::bad; see check_bad_regions() for the limit. Throws
/// Error io_error if the file cannot be read.
///
/// Memory: the index and, per thread, a few buffers of 256 KiB or the thread's longest record. Bytes inside a record
/// may look like the header of a record of up to record_limit bytes, for which a thread then makes its buffer larger.
///
/// The bytes that a range reads because of wrong guesses are at most twice its size plus 16 MiB plus record_limit.
/// After that the range gives up, and the stitch scans the rest of it.
FileIndex count_records(const std::shared_ptr<const SourceFile>& file, const CountOptions& options,
                        const CountProgress& progress = {}, const CountDamage& damage = {});
/// Opens the file `name`, and counts it as above.
inline FileIndex count_records(const std::string& name, const CountOptions& options, const CountProgress& progress = {},
                               const CountDamage& damage = {}) {
  return count_records(all_files().open(name), options, progress, damage);
}

/// Scans the bytes [begin, end) of a plain file, as one of several ranks that share a file does. The bytes are divided
/// into ranges. Returns, in ascending order, the chains that were found in the ranges. A chain is a sequence of valid
/// records without gaps, where the beginning of the first record was guessed. join_parts() stitches the chains of all
/// ranks together. Blocks, runs in the caller's task arena, reports to `progress` and throws as count_records() does.
std::vector<IndexBuilder> count_part(const std::shared_ptr<const SourceFile>& file, uint64_t begin, uint64_t end,
                                     const CountOptions& options, const CountProgress& progress = {});

/// Makes the index of a plain file from the chains of all its parts, in order, whichever ranks have counted them. Reads
/// only the bytes for which no chain can be used: none if the file is sound and no record contains records. Throws
/// Error bad_pipeline if the chains make an index that contradicts itself (io/index/index_check.h).
FileIndex join_parts(const std::shared_ptr<const SourceFile>& file, const std::vector<IndexBuilder>& chains,
                     const CountOptions& options, const CountDamage& damage = {});

/// Throws an Error with the category and the place of `next` if `known` bad regions are already as many as an index may
/// have (most_bad_regions).
void check_bad_regions(size_t known, const BadRegion& next, const std::string& file);

}  // namespace feedline::io
