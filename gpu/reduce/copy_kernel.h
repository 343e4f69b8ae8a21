// Makes many copies within a GPU's memory by one kernel, because the gradients of a model lie in many places and are
// sent together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "unpack/check_aligned.h"

namespace feedline::gpu {

/// One of several copies that are made together, in any order. So its source must not overlap the destination of any of
/// these copies.
struct CopyPart {
  const void* from;
  void* to;
  size_t bytes;
};

/// The arguments of the kernel, which the launch carries. CUDA allows 4096 bytes.
struct CopyArgs {
  static constexpr size_t most_parts = 96;
  struct Part {
    const std::byte* from;
    std::byte* to;
    uint64_t bytes;
    uint32_t word;   // the size in bytes of the words that are copied: 1, 2, 4, 8 or 16
    uint32_t after;  // the number of pieces in this part and all parts before it
  };
  Part parts[most_parts];
  uint32_t count;

  /// Returns the number of blocks to launch; 0 if there is nothing to copy.
  uint32_t blocks() const noexcept { return count ? parts[count - 1].after : 0; }
};
static_assert(sizeof(CopyArgs) <= 4096);

/// A part is copied in pieces of this size, each by one block of threads. CUDA allows 2^31 blocks, which is 64 TiB.
inline constexpr uint32_t copy_piece_bytes = 32 << 10;

/// Removes parts from the front of `parts`, as many as one launch carries. Returns the arguments of a launch that
/// copies the removed parts, except those without bytes.
inline CopyArgs take_copies(std::span<const CopyPart>& parts) {
  CopyArgs args{};
  uint32_t pieces = 0;
  for (; !parts.empty() && args.count < CopyArgs::most_parts; parts = parts.subspan(1)) {
    const CopyPart& part = parts.front();
    if (part.bytes == 0) continue;
    pieces += static_cast<uint32_t>((part.bytes + copy_piece_bytes - 1) / copy_piece_bytes);
    const auto bits = reinterpret_cast<uintptr_t>(part.from) | reinterpret_cast<uintptr_t>(part.to) | part.bytes | 16;
    args.parts[args.count++] = {static_cast<const std::byte*>(part.from), static_cast<std::byte*>(part.to), part.bytes,
                                static_cast<uint32_t>(bits & -bits), pieces};
  }
  return args;
}

template <typename Word>
FEEDLINE_ELEMENT void copy_words(const std::byte* from, std::byte* to, uint32_t words, uint32_t thread,
                                 uint32_t threads) {
  constexpr uint32_t at_once = 4;  // this many loads are under way before the first store waits for one of them
  unpack::check_aligned(from, sizeof(Word));
  unpack::check_aligned(to, sizeof(Word));
  const auto* const in = reinterpret_cast<const Word*>(from);
  auto* const out = reinterpret_cast<Word*>(to);
  uint32_t word = thread;
  for (; word + (at_once - 1) * threads < words; word += at_once * threads) {
    Word loaded[at_once];
    for (uint32_t i = 0; i < at_once; i++) loaded[i] = in[word + i * threads];
    for (uint32_t i = 0; i < at_once; i++) out[word + i * threads] = loaded[i];
  }
  for (; word < words; word += threads) out[word] = in[word];
}

struct alignas(16) Word16 {
  uint32_t part[4];
};

/// Does the work of thread number `thread` of the `threads` threads in block number `block`.
FEEDLINE_ELEMENT void copy_thread(const CopyArgs& args, uint32_t block, uint32_t thread, uint32_t threads) {
  uint32_t first = 0;  // the part that has piece `block`: the first part that ends after this piece
  for (uint32_t end = args.count; first < end;) {
    const uint32_t middle = (first + end) / 2;
    if (args.parts[middle].after > block)
      end = middle;
    else
      first = middle + 1;
  }
  const CopyArgs::Part& part = args.parts[first];
  const uint64_t begin = uint64_t{block - (first ? args.parts[first - 1].after : 0)} * copy_piece_bytes;
  const uint64_t left = part.bytes - begin;
  const auto bytes = static_cast<uint32_t>(left < copy_piece_bytes ? left : copy_piece_bytes);
  const std::byte* const from = part.from + begin;
  std::byte* const to = part.to + begin;
  switch (part.word) {
    case 16:
      return copy_words<Word16>(from, to, bytes / 16, thread, threads);
    case 8:
      return copy_words<uint64_t>(from, to, bytes / 8, thread, threads);
    case 4:
      return copy_words<uint32_t>(from, to, bytes / 4, thread, threads);
    case 2:
      return copy_words<uint16_t>(from, to, bytes / 2, thread, threads);
    default:
      return copy_words<uint8_t>(from, to, bytes, thread, threads);
  }
}

}  // namespace feedline::gpu
