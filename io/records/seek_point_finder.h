// Finds the places of a deflate stream from which the rest can be inflated, while ISA-L inflates the stream.
//
// Such a place is the beginning of a block, and ISA-L does not stop there. But if its input ends within the header of a
// block, it keeps the header's first bytes, and inflate_state says so. So when a seek point is due, the input is given
// in small pieces, until one of them ends within a header. Headers of blocks with codes of their own have 14 to 286
// bytes, mostly 50 to 90. Other headers are short, but where a stored block ends is known beforehand. Small pieces take
// ISA-L longer, so a search that finds nothing is given up until the next point would be due.
#pragma once

#include <isa-l/igzip_lib.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "io/records/seek_point.h"

namespace feedline::io {

class SeekPointFinder {
 public:
  SeekPointFinder(uint64_t spacing, SeekPointFound found)
      : spacing_(spacing), found_(std::move(found)), window_(2 * deflate_window), due_(spacing) {}

  /// Returns how many of `size` bytes of input ISA-L may be given next.
  size_t most_input(const inflate_state& inflate, size_t size) const noexcept {
    if (offset_ < due_) return size;
    size_t piece = 64;
    if (inflate.block_state == ISAL_BLOCK_TYPE0)  // up to the first byte of the header after the stored block
      piece = static_cast<size_t>(std::max(0, inflate.type0_block_len - inflate.read_in_length / 8)) + 1;
    return std::min(size, piece);
  }
  /// Returns how many of `size` bytes of output ISA-L may be given next. The bytes of a window are not skipped.
  size_t most_output(size_t size) const noexcept {
    return offset_ + deflate_window < due_ ? std::min<uint64_t>(size, due_ - deflate_window - offset_) : size;
  }

  /// Takes what a call has made.
  void add(std::span<const std::byte> made) {
    offset_ += made.size();
    if (offset_ + deflate_window <= due_) return;
    if (made.size() >= deflate_window) {
      std::memcpy(window_.data(), made.data() + made.size() - deflate_window, deflate_window);
      filled_ = deflate_window;
      return;
    }
    if (filled_ + made.size() > window_.size()) {
      std::memmove(window_.data(), window_.data() + filled_ - deflate_window, deflate_window);
      filled_ = deflate_window;
    }
    if (!made.empty()) std::memcpy(window_.data() + filled_, made.data(), made.size());
    filled_ += made.size();
  }

  /// Tells of the seek point, if there is one and it is due. `input` is how many bytes of the file ISA-L has been given
  /// so far; the other arguments are those of the point.
  void look(const inflate_state& inflate, uint64_t input, uint64_t member_size, uint32_t check) {
    if (offset_ < due_) return;
    if (searched_from_ == 0) searched_from_ = input;
    const bool all_given_out = inflate.tmp_out_processed == inflate.tmp_out_valid && inflate.write_overflow_len == 0 &&
                               inflate.copy_overflow_length == 0;
    if (inflate.block_state != ISAL_BLOCK_HDR || !all_given_out) {
      if (input - searched_from_ > longest_search) wait_for(spacing_);
      return;
    }
    const uint64_t bit =
        (input - static_cast<uint64_t>(inflate.tmp_in_size)) * 8 - static_cast<uint64_t>(inflate.read_in_length);
    if (bit == input * 8) return;  // perhaps the file ends here, in a stream that was cut short
    const size_t window = std::min<uint64_t>(deflate_window, member_size);
    const size_t kept = found_({.offset = offset_, .bit = bit, .member_size = member_size, .check = check},
                               {window_.data() + filled_ - window, window});
    wait_for(std::max<uint64_t>(spacing_, stream_bytes_per_kept_byte * kept));
  }

 private:
  // Windows take at most a 128th of the inflated stream, also if they cannot be deflated.
  static constexpr uint64_t stream_bytes_per_kept_byte = 128;
  static constexpr uint64_t longest_search = 256 << 10;  // bytes of input

  void wait_for(uint64_t bytes) noexcept {
    due_ = offset_ + bytes;
    searched_from_ = 0;
  }

  const uint64_t spacing_;
  const SeekPointFound found_;
  std::vector<std::byte> window_;  // ends with the last bytes of the inflated stream, if a point is due soon
  size_t filled_ = 0;
  uint64_t offset_ = 0, due_;   // in the inflated stream: where it has come to, and where the next point is due
  uint64_t searched_from_ = 0;  // the bytes of input before the search for the point that is due; 0: none is due
};

}  // namespace feedline::io
