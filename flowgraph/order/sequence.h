// The samples of a pass before any shuffling: files one after another, or interleaved.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Samples of a file, one after another.
struct Run {
  uint32_t file = 0;
  uint64_t first = 0, count = 0;
};

/// Interleaved as tf.data does: `cycle_length` files are open, and each in turn gives `block_length` samples. A file
/// that ends gives up its turn, and its place is taken by the next file when the turn comes round to it again.
class Sequence {
 public:
  /// From sample `position` of the pass on. O(files * cycle_length), whatever the position. `starts`: samples before
  /// each file, and in all; keeps a reference. `files`: in their order in this pass.
  Sequence(const std::vector<uint64_t>& starts, std::vector<uint32_t> files, const InterleaveSpec& interleave,
           uint64_t position);

  /// The next at most `most` samples that lie one after another; none at the end of the pass.
  Run next(uint64_t most);

 private:
  struct Open {
    bool open = false;
    uint32_t file = 0;
    uint64_t next = 0, left = 0;
  };
  void advance() noexcept;
  uint64_t whole_rounds() const noexcept;

  const std::vector<uint64_t>* starts_;
  std::vector<uint32_t> files_;
  InterleaveSpec interleave_;
  size_t next_file_ = 0;
  std::vector<Open> cycle_;
  size_t turn_ = 0;
  uint64_t given_ = 0;  // of this turn
  size_t open_ = 0;
};

}  // namespace feedline::flow
