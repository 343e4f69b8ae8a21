// index.mode LAZY: reads files that have no index from front to back, and counts their records on the way.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "flowgraph/chunk/chunk.h"
#include "io/index/index_builder.h"
#include "io/index/seek_points.h"
#include "io/records/record_stream.h"

namespace feedline::flow {

struct Schedule;

/// Fills chunk after chunk with as many records as fit, in file order and pass after pass. The first pass counts on one
/// thread as io/index/count_records.h does on all threads: the same records count as good, and the indexes are the
/// same. When a file ends, its index is stored (io/index/index_store.h). Not thread-safe, except for stop(). The reads
/// block, and do not go through the read backend.
class LazyReader {
 public:
  /// Keeps a reference to `schedule`.
  explicit LazyReader(const Schedule& schedule) : schedule_(schedule) {}

  /// Reads the next records into a chunk: sets its ticket, extents and data. A ticket without rows stands for the end
  /// of a pass. If Chunk::failed is set as well, the data ends with that error.
  void fill(Chunk& chunk);

  /// Makes the next read of a file fail, so that fill() ends soon, even if it is searching damaged data for a record.
  /// The chunk that it fills is of no use then.
  void stop() noexcept { stopped_ = true; }

  /// Returns whether the data has ended with an error.
  bool ended() const noexcept { return ended_; }
  uint64_t bytes_read() const noexcept { return bytes_read_; }
  /// The indexes of all files, once the first pass is over.
  const std::optional<std::vector<io::FileIndex>>& counted() const noexcept { return counted_; }

 private:
  void begin_file();
  void end_file();
  bool next_records(Chunk& chunk);
  void pass_over(const io::BadRegion& region, Chunk& chunk);
  bool take(Chunk& chunk, uint64_t& used);

  const Schedule& schedule_;
  std::atomic<bool> stopped_{false};
  uint32_t file_ = 0;
  std::optional<io::RecordStream> stream_;   // reads file_
  std::span<const io::RecordView> records_;  // the records that stream_ has found and that no chunk has taken yet
  uint64_t told_ = 0;                        // how many bytes of file_ are included in bytes_read_
  uint64_t bytes_read_ = 0;
  uint64_t passed_over_ = 0;    // the number of bad regions that were passed over in this pass
  std::optional<Error> error_;  // the error with which the data ends
  bool ended_ = false;

  // Used in the first pass.
  std::optional<io::IndexBuilder> builder_;
  io::SeekPointList seek_points_;   // of file_, if it is compressed
  std::vector<io::BadRegion> bad_;  // the bad regions of file_
  uint64_t bad_regions_ = 0;        // the number of bad regions in all files
  std::vector<io::FileIndex> indexes_;
  std::optional<std::vector<io::FileIndex>> counted_;
};

}  // namespace feedline::flow
