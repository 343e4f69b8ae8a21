// The seek points of a compressed file, as its index keeps them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "io/records/seek_point.h"

namespace feedline::io {

/// A seek point in a list of them. Its window is kept deflated, in a table with the windows of all points, one after
/// another.
struct SeekEntry {
  SeekPoint point;
  uint64_t window_end = 0;  // where its deflated window ends in that table; it begins where the one before ends

  bool operator==(const SeekEntry&) const = default;
};

/// The most bytes that a deflated window takes.
inline constexpr size_t most_window_bytes = deflate_window + 512;
/// Returns the size of a point's window, in bytes.
constexpr size_t window_size(const SeekPoint& point) noexcept {
  return point.member_size < deflate_window ? static_cast<size_t>(point.member_size) : deflate_window;
}

/// Collects the seek points of a file.
class SeekPointList {
 public:
  /// Adds a point after those added before. A SeekPointFound.
  size_t add(const SeekPoint& point, std::span<const std::byte> window);
  /// Return what was added, and leave the list empty.
  std::vector<SeekEntry> take_entries() { return exact(entries_); }
  std::vector<std::byte> take_windows() { return exact(windows_); }

 private:
  template <typename T>
  static std::vector<T> exact(std::vector<T>& rows) {
    rows.shrink_to_fit();  // a vector that has grown may have room for twice as many rows
    return std::exchange(rows, {});
  }

  std::vector<SeekEntry> entries_;
  std::vector<std::byte> windows_;
};

/// Inflates a window of `size` bytes into `into`. Returns false if `deflated` is no such window. Thread-safe.
bool inflate_window(std::span<const std::byte> deflated, size_t size, std::span<std::byte, deflate_window> into);

}  // namespace feedline::io
