// Draws the structure of an input from the bytes of a fuzzing engine. So a seed is a few bytes, each change of a byte is a
// change of the structure, and numbers fall on and beside the bounds that the code compares them with.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>

namespace feedline::test {

/// All draws give 0, or what is first, once the bytes have run out; so every input is a complete structure.
class Draw {
 public:
  /// `data` must outlive the object.
  Draw(const uint8_t* data, size_t size) noexcept : at_(data), end_(data + size) {}

  bool empty() const noexcept { return at_ == end_; }

  /// Returns a number below `bound`, which must not be 0. Takes as many bytes as the largest such number has.
  uint64_t below(uint64_t bound) noexcept {
    uint64_t number = 0;
    for (uint64_t left = bound - 1; left > 0; left >>= 8) number = number << 8 | byte();
    return number % bound;
  }
  bool coin() noexcept { return below(2) == 1; }

  /// Returns any value of a type of numbers, NaN and infinity too. Takes as many bytes as it has.
  template <typename T>
  T any() noexcept {
    std::array<uint8_t, sizeof(T)> bytes{};
    for (size_t i = 0; i < sizeof(T); i++) bytes[i] = byte();
    return std::bit_cast<T>(bytes);
  }

  /// Returns a number that a comparison with `bound` should be tried with: at it or next to it, 0, 1, a part or a multiple
  /// of it, the largest numbers of 31 to 64 bits, or any. It may be on either side of the bound.
  uint64_t near(uint64_t bound) noexcept {
    switch (const uint8_t how = byte() % 16; how) {
      case 6:
      case 7:
        return how - uint64_t{6};  // 0 and 1
      case 8:
        return bound / 2;
      case 9:
        return bound * 2;
      case 10:
        return bound * (1 + below(256));
      case 11:
      case 12:
        return (uint64_t{1} << (how == 11 ? 31 : 32)) - below(3);
      case 13:
        return (uint64_t{1} << 63) - below(3);
      case 14:
        return uint64_t{0} - 1 - below(3);
      case 15:
        return any<uint64_t>();
      default:
        return bound + how - 2;  // from 2 below to 3 above
    }
  }

  /// Returns one of `choices`, which must not be empty.
  template <typename T>
  const T& one_of(std::span<const T> choices) noexcept {
    return choices[below(choices.size())];
  }
  template <typename T, size_t N>
  const T& one_of(const T (&choices)[N]) noexcept {
    return choices[below(N)];
  }

  /// Returns the next `size` bytes, or as many as there are.
  std::string_view bytes(size_t size) noexcept {
    size = std::min(size, static_cast<size_t>(end_ - at_));
    const std::string_view taken(reinterpret_cast<const char*>(at_), size);
    at_ += size;
    return taken;
  }
  /// Returns the bytes that are left.
  std::string_view rest() noexcept { return bytes(static_cast<size_t>(end_ - at_)); }

 private:
  uint8_t byte() noexcept { return at_ == end_ ? 0 : *at_++; }

  const uint8_t* at_;
  const uint8_t* end_;
};

/// A copy of bytes in a block of memory that ends where they end, so that AddressSanitizer sees a read past them. (It
/// does not see one within the capacity of a std::string.)
class ExactBlock {
 public:
  explicit ExactBlock(std::string_view bytes) : size_(bytes.size()), data_(new std::byte[bytes.size()]) {
    std::ranges::copy(std::as_bytes(std::span(bytes)), data_.get());
  }
  std::byte* data() noexcept { return data_.get(); }
  const std::byte* data() const noexcept { return data_.get(); }
  size_t size() const noexcept { return size_; }
  std::span<const std::byte> span() const noexcept { return {data_.get(), size_}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_.get()), size_}; }

 private:
  size_t size_;
  std::unique_ptr<std::byte[]> data_;
};

/// A block of memory for results that begins at a multiple of 256 bytes, as a tensor does, and ends where its bytes end.
/// Until they are written, they are all `untouched`.
class OutputBlock {
 public:
  static constexpr std::byte untouched{0xa5};
  explicit OutputBlock(size_t size) : size_(size), data_(static_cast<std::byte*>(::operator new(size, line))) {
    std::fill_n(data_.get(), size, untouched);
  }
  std::byte* data() const noexcept { return data_.get(); }
  std::span<std::byte> span() const noexcept { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t line{256};
  struct Free {
    void operator()(std::byte* data) const noexcept { ::operator delete(data, line); }
  };
  size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace feedline::test
