// Which of a file's good records are samples: the part that `range` and `num_shards` leave, and of it what the filter
// keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace feedline::flow {

/// A set of the numbers below some bound. Immutable.
class NumberSet {
 public:
  /// Number i is in it if bit i % 64 of words[i / 64] is 1.
  explicit NumberSet(std::vector<uint64_t> words);

  uint64_t size() const noexcept { return before_.back(); }
  bool has(uint64_t number) const noexcept {
    return number / 64 < words_.size() && (words_[number / 64] >> number % 64 & 1) != 0;
  }
  /// How many are smaller.
  uint64_t before(uint64_t number) const noexcept;
  /// The one that `index` are smaller than; index < size().
  uint64_t at(uint64_t index) const noexcept;

  const std::vector<uint64_t>& words() const noexcept { return words_; }
  uint64_t memory_bytes() const noexcept { return (words_.capacity() + before_.capacity()) * sizeof(uint64_t); }

 private:
  static constexpr uint64_t group = 8;  // words
  std::vector<uint64_t> words_;
  std::vector<uint64_t> before_;  // numbers in the groups before each, and in all
};

/// Samples and good records of a file are both numbered from 0. Copies share the set.
class Selection {
 public:
  Selection() = default;  // none
  /// The records [begin, end).
  Selection(uint64_t begin, uint64_t end) noexcept : begin_(begin), end_(std::max(begin, end)) {}
  /// These records.
  explicit Selection(std::shared_ptr<const NumberSet> kept) noexcept : end_(kept->size()), kept_(std::move(kept)) {}

  /// Takes away the records from `record` on. Not of a set.
  void end_at(uint64_t record) noexcept { end_ = std::max(begin_, std::min(end_, record)); }

  uint64_t samples() const noexcept { return end_ - begin_; }
  /// Samples among the records [0, record).
  uint64_t before(uint64_t record) const noexcept {
    return kept_ ? kept_->before(record) : std::clamp(record, begin_, end_) - begin_;
  }
  uint64_t record(uint64_t sample) const noexcept { return kept_ ? kept_->at(sample) : begin_ + sample; }
  /// Null: every record between two samples is one.
  const NumberSet* kept() const noexcept { return kept_.get(); }

 private:
  uint64_t begin_ = 0, end_ = 0;
  std::shared_ptr<const NumberSet> kept_;
};

}  // namespace feedline::flow
