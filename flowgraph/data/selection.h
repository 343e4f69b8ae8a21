// Says which of a file's good records are samples: those that `range` and `num_shards` choose and the filter keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace feedline::flow {

/// A set of numbers below some bound. It is a bitmap with prefix sums, so that before() (rank) takes O(1), and at()
/// (select) takes O(log n). Immutable.
class NumberSet {
 public:
  /// Number i is in the set if bit i % 64 of words[i / 64] is 1.
  explicit NumberSet(std::vector<uint64_t> words);

  uint64_t size() const noexcept { return before_.back(); }
  bool has(uint64_t number) const noexcept {
    return number / 64 < words_.size() && (words_[number / 64] >> number % 64 & 1) != 0;
  }
  /// Returns how many numbers in the set are smaller than `number`.
  uint64_t before(uint64_t number) const noexcept;
  /// Returns the number at position `index` of the set in ascending order. Precondition: index < size().
  uint64_t at(uint64_t index) const noexcept;

  /// Returns a hash of the numbers in the set.
  uint64_t digest() const noexcept;

  uint64_t memory_bytes() const noexcept { return (words_.capacity() + before_.capacity()) * sizeof(uint64_t); }

 private:
  static constexpr uint64_t group = 8;  // words in a group
  std::vector<uint64_t> words_;
  std::vector<uint64_t> before_;  // prefix sums: how many numbers lie before each group; the last sum is the total
};

/// The samples of a file. Samples and good records are both numbered from 0. Copies share one NumberSet.
class Selection {
 public:
  Selection() = default;  // selects no records
  /// Selects the records [begin, end).
  Selection(uint64_t begin, uint64_t end) noexcept : begin_(begin), end_(std::max(begin, end)) {}
  /// Selects the records in a set.
  explicit Selection(std::shared_ptr<const NumberSet> kept) noexcept : end_(kept->size()), kept_(std::move(kept)) {}

  /// Removes the records from `record` on. Precondition: the selection was not made from a set.
  void end_at(uint64_t record) noexcept { end_ = std::max(begin_, std::min(end_, record)); }

  uint64_t samples() const noexcept { return end_ - begin_; }
  /// Returns how many samples are among the records [0, record).
  uint64_t before(uint64_t record) const noexcept {
    return kept_ ? kept_->before(record) : std::clamp(record, begin_, end_) - begin_;
  }
  uint64_t record(uint64_t sample) const noexcept { return kept_ ? kept_->at(sample) : begin_ + sample; }
  /// Returns the set of records that are samples; null if the samples are consecutive records.
  const NumberSet* kept() const noexcept { return kept_.get(); }

 private:
  uint64_t begin_ = 0, end_ = 0;
  std::shared_ptr<const NumberSet> kept_;
};

}  // namespace feedline::flow
