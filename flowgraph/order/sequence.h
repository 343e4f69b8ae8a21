// The samples of one pass before any shuffling: the files one after another, or interleaved.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// The samples [first, first + count) of a file.
struct Run {
  uint32_t file = 0;
  uint64_t first = 0, count = 0;
};

/// The samples of a pass, before they are shuffled. Files are interleaved in the same way as in tf.data: `cycle_length`
/// files are open, and each in turn gives `block_length` samples. When a file ends, its turn ends, too; the next file
/// takes its place when the turn comes round to that place again. With a cycle_length of 1 the files come one after
/// another.
class Sequence {
 public:
  /// Begins at sample `position` of the pass. Takes O(files * cycle_length) time, whatever the position. `starts` has
  /// for each file the number of samples before the file's own; its last entry is the number of all samples. The
  /// sequence keeps a reference to `starts`. `files` has the numbers of the files, in the order of this pass.
  Sequence(const std::vector<uint64_t>& starts, std::vector<uint32_t> files, const InterleaveSpec& interleave,
           uint64_t position);

  /// Returns the next samples that lie one after another in a file: at least one and at most `most`. At the end of the
  /// pass returns an empty Run.
  Run next(uint64_t most);

 private:
  /// A place of the cycle, and the file in it.
  struct CycleFile {
    bool open = false;
    uint32_t file = 0;
    uint64_t next = 0, left = 0;  // the file's next sample, and the number of its samples that are left
  };
  void advance() noexcept;
  uint64_t whole_rounds() const noexcept;

  const std::vector<uint64_t>* starts_;
  std::vector<uint32_t> files_;
  InterleaveSpec interleave_;
  size_t next_file_ = 0;  // index in files_ of the file that is opened next
  std::vector<CycleFile> cycle_;
  size_t turn_ = 0;     // the place of the cycle whose turn it is
  uint64_t given_ = 0;  // the samples that the file in that place has given in this turn
  size_t open_ = 0;     // the number of open files
};

}  // namespace feedline::flow
