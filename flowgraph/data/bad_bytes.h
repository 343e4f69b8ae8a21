// Adds up how many bytes of a file are bad, from one offset to the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "io/index/index.h"

namespace feedline::flow {

/// Returns the first bad region that begins at `offset` or after it.
inline std::vector<io::BadRegion>::const_iterator first_bad_from(const io::FileIndex& index, uint64_t offset) {
  return std::lower_bound(index.bad.begin(), index.bad.end(), offset,
                          [](const io::BadRegion& region, uint64_t at) { return region.offset < at; });
}

/// Goes through the bad regions of a file, starting at the first entry of its index. The index must outlive this
/// object.
class BadBytes {
 public:
  BadBytes() = default;
  explicit BadBytes(const io::FileIndex& index)
      : at_(first_bad_from(index, index.entries.front().offset)), end_(index.bad.end()) {}

  struct Sum {
    uint64_t bytes = 0, regions = 0;
  };
  /// Returns the sum of the regions that begin before `offset` and were not in the sum of an earlier call.
  Sum until(uint64_t offset) {
    Sum sum;
    for (; at_ != end_ && at_->offset < offset; ++at_, sum.regions++) sum.bytes += at_->length;
    return sum;
  }

 private:
  std::vector<io::BadRegion>::const_iterator at_, end_;
};

}  // namespace feedline::flow
