// index.mode LAZY: files that nobody has counted, read from front to back and counted on the way.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "flowgraph/chunk/chunk.h"
#include "io/index/index_builder.h"
#include "io/records/record_stream.h"

namespace feedline::flow {

struct Plan;

/// Chunk after chunk, in file order and pass after pass, of as many records as fit. What io/index/count_records.h does on all
/// threads this does on one: the same records are good, and the first pass gives the same indexes, which it keeps
/// (io/index/index_store.h) file by file. Not thread-safe. Reads are blocking, past the read backend.
class LazyReader {
 public:
  /// Keeps a reference to `plan`.
  explicit LazyReader(const Plan& plan) : plan_(plan) {}

  /// Fills in ticket, extents and data. A ticket without rows is the end of a pass or, with Chunk::failed, of the data.
  void fill(Chunk& chunk);

  /// Nothing comes any more.
  bool ended() const noexcept { return ended_; }
  uint64_t bytes_read() const noexcept { return bytes_read_; }
  /// Of all files, once the first pass is over.
  const std::optional<std::vector<io::FileIndex>>& counted() const noexcept { return counted_; }

 private:
  void begin_file();
  void end_file();
  bool next_records(Chunk& chunk);
  void pass_over(const io::BadRegion& region, Chunk& chunk);
  bool take(Chunk& chunk, uint64_t& used);

  const Plan& plan_;
  uint32_t file_ = 0;
  std::optional<io::RecordStream> stream_;   // of it
  std::span<const io::RecordView> records_;  // of the stream: not yet taken
  uint64_t told_ = 0;                        // bytes of the file that are in bytes_read_
  uint64_t bytes_read_ = 0;
  uint64_t passed_over_ = 0;    // bad regions of this pass
  std::optional<Error> error_;  // that the data ends with
  bool ended_ = false;

  // The first pass.
  std::optional<io::IndexBuilder> builder_;
  std::vector<io::BadRegion> bad_;  // of the file
  uint64_t bad_regions_ = 0;        // of all
  std::vector<io::FileIndex> indexes_;
  std::optional<std::vector<io::FileIndex>> counted_;
};

}  // namespace feedline::flow
