// The decimal text of an INT64 value of a feature, by which numbers are looked up and hashed as names are.
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/load.h"

namespace feedline::flow {

/// A number as text: digits without leading zeros, after a minus sign if it is negative.
class DecimalText {
 public:
  DecimalText() = default;
  /// `value` is an INT64 as it lies in memory.
  explicit DecimalText(std::span<const std::byte> value) noexcept
      : size_(static_cast<size_t>(
            std::to_chars(text_.data(), text_.data() + text_.size(), load<int64_t>(value.data())).ptr - text_.data())) {
  }

  std::string_view view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, 20> text_;  // the lowest number has 20 characters
  size_t size_ = 0;
};

}  // namespace feedline::flow
