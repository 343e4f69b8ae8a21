// Which of a file's good records are samples: the part that `range` and `num_shards` leave.
#pragma once

#include <algorithm>
#include <cstdint>

namespace feedline::flow {

/// Samples and good records of a file are both numbered from 0; a sample's record has at least its number.
class Selection {
 public:
  Selection() = default;  // none
  /// The records [begin, end).
  Selection(uint64_t begin, uint64_t end) noexcept : begin_(begin), end_(std::max(begin, end)) {}

  /// Takes away the records from `record` on.
  void end_at(uint64_t record) noexcept { end_ = std::max(begin_, std::min(end_, record)); }

  uint64_t samples() const noexcept { return end_ - begin_; }
  /// Samples among the records [0, record).
  uint64_t before(uint64_t record) const noexcept { return std::clamp(record, begin_, end_) - begin_; }
  uint64_t record(uint64_t sample) const noexcept { return begin_ + sample; }

 private:
  uint64_t begin_ = 0, end_ = 0;
};

}  // namespace feedline::flow
