// Counts how often each string occurs, if there are few different strings and all are short, as labels are.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/rank_message.h"

namespace feedline::tool {

/// Counts strings of bytes by content. If a string is longer than `longest` bytes, or if there are more than `most`
/// different strings, nothing is counted. Whether this happens depends only on the set of strings, not on their order.
/// Not thread-safe.
class TextCounts {
 public:
  static constexpr size_t most = 4096, longest = 64;

  void add(std::string_view text, uint64_t times = 1);
  void merge(const TextCounts& other);

  bool counted() const noexcept { return !too_many_; }
  /// Returns the strings in ascending order of their bytes, each with its count. The map is empty unless counted().
  const std::map<std::string, uint64_t, std::less<>>& counts() const noexcept { return counts_; }

  void put(MessageWriter& message) const;
  void get(MessageReader& message);

 private:
  void give_up();

  bool too_many_ = false;
  std::map<std::string, uint64_t, std::less<>> counts_;
};

}  // namespace feedline::tool
