// The arithmetic of one read: which call comes next, and what the number of bytes that a call returned means. It does
// no I/O.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "io/read/read_backend.h"

namespace feedline::io {

/// The arguments of one pread or one io_uring read.
struct ReadCall {
  std::byte* buffer = nullptr;
  uint64_t offset = 0;
  uint32_t length = 0;
};

/// Keeps track of how much of one read is done.
class ReadProgress {
 public:
  enum class Step : uint8_t {
    again,  // make the next call
    done,   // the whole range has been read
    ended,  // the file ends inside the range
  };
  /// The maximum number of bytes that one call asks for. Linux transfers a little less than 2 GiB at once.
  static constexpr uint64_t call_limit = uint64_t{1} << 30;

  ReadProgress() = default;
  /// `alignment` is a power of two, at most block_bytes. Addresses, offsets and lengths of calls are multiples of it.
  ReadProgress(const Read& read, uint32_t alignment) noexcept
      : buffer_(read.buffer),
        first_(down(read.offset, block_bytes)),
        reached_(down(read.offset, alignment)),
        end_(read.offset + read.length),
        alignment_(alignment) {}

  ReadCall next() const noexcept {
    const uint64_t from = down(reached_, alignment_);
    const uint64_t length = std::min(down(end_ + alignment_ - 1, alignment_) - from, call_limit);
    return {buffer_ + (from - first_), from, static_cast<uint32_t>(length)};
  }

  /// Takes the number of bytes that the call from next() has read, which may be fewer than it asked for. With O_DIRECT
  /// the following call must begin at an aligned offset. So if the number is not a multiple of the alignment, the
  /// following call begins at the last aligned offset before the end of what was read. If that call brings nothing new,
  /// the file ends there.
  Step advance(uint64_t bytes) noexcept {
    const uint64_t reached = down(reached_, alignment_) + bytes;
    if (reached >= end_) return Step::done;
    if (reached <= reached_) return Step::ended;
    reached_ = reached;
    return Step::again;
  }

 private:
  static constexpr uint64_t down(uint64_t value, uint64_t multiple) noexcept { return value & ~(multiple - 1); }

  std::byte* buffer_ = nullptr;
  uint64_t first_ = 0;              // the offset in the file that belongs to the buffer's first byte
  uint64_t reached_ = 0, end_ = 0;  // offsets in the file: the range has been read up to reached_, and ends at end_
  uint64_t alignment_ = 1;
};

}  // namespace feedline::io
