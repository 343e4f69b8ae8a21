// How far one read has come: which call is next, and what the bytes that it returned mean. No I/O.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "io/read/read_backend.h"

namespace feedline::io {

/// Arguments of one pread or io_uring read.
struct ReadCall {
  std::byte* buffer = nullptr;
  uint64_t offset = 0;
  uint32_t length = 0;
};

class ReadProgress {
 public:
  enum class Step : uint8_t {
    again,  // make the next call
    done,   // the whole range is there
    ended,  // the file ends inside the range
  };
  /// One call asks for no more: what Linux transfers at once is a little less than 2 GiB.
  static constexpr uint64_t call_limit = uint64_t{1} << 30;

  ReadProgress() = default;
  /// alignment: a power of two up to block_bytes that addresses, offsets and lengths of calls shall be multiples of.
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

  /// The call next() returned `bytes`, perhaps fewer than asked for. O_DIRECT goes on at the last aligned offset, so a
  /// count that is no multiple of the alignment is read again from there; when that brings nothing new, it was the end.
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
  uint64_t first_ = 0;  // offset of the buffer's first byte
  uint64_t reached_ = 0, end_ = 0;
  uint64_t alignment_ = 1;
};

}  // namespace feedline::io
