#include "flowgraph/data/selection.h"

#include <bit>
#include <utility>

#include "base/audit.h"

namespace feedline::flow {

NumberSet::NumberSet(std::vector<uint64_t> words) : words_(std::move(words)) {
  words_.resize((words_.size() + group - 1) / group * group);
  words_.shrink_to_fit();
  before_.reserve(words_.size() / group + 1);
  before_.push_back(0);
  for (size_t first = 0; first < words_.size(); first += group) {
    uint64_t count = before_.back();
    for (size_t w = first; w < first + group; w++) count += static_cast<uint64_t>(std::popcount(words_[w]));
    before_.push_back(count);
  }
}

uint64_t NumberSet::before(uint64_t number) const noexcept {
  const uint64_t word = number / 64;
  if (word >= words_.size()) return size();
  uint64_t count = before_[word / group];
  for (uint64_t w = word / group * group; w < word; w++) count += static_cast<uint64_t>(std::popcount(words_[w]));
  const uint64_t below = (uint64_t{1} << number % 64) - 1;
  return count + static_cast<uint64_t>(std::popcount(words_[word] & below));
}

uint64_t NumberSet::digest() const noexcept {
  uint64_t digest = 0;
  for (const uint64_t word : words_) digest = mix64(digest ^ word);
  return digest;
}

uint64_t NumberSet::at(uint64_t index) const noexcept {
  const auto after = std::upper_bound(before_.begin(), before_.end(), index);
  uint64_t word = static_cast<uint64_t>(after - before_.begin() - 1) * group;
  uint64_t left = index - after[-1];
  for (uint64_t in_word; (in_word = static_cast<uint64_t>(std::popcount(words_[word]))) <= left; word++)
    left -= in_word;
  uint64_t bits = words_[word];
  for (; left > 0; left--) bits &= bits - 1;
  return word * 64 + static_cast<uint64_t>(std::countr_zero(bits));
}

}  // namespace feedline::flow
