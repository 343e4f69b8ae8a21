// Checks whether an index can be right. Every index that comes from a disk or from another rank must pass.
#pragma once

#include <cstdint>
#include <string>

#include "base/mul_div.h"
#include "io/index/index.h"

namespace feedline::io {

/// Returns whether a file of `file_size` bytes can hold a stream that has `stream_size` bytes after inflating. One byte
/// of deflate data inflates to at most 1032 bytes.
constexpr bool can_be_stream(Compression compression, uint64_t stream_size, uint64_t file_size) noexcept {
  return compression == Compression::none ? stream_size == file_size : stream_size / 1032 <= file_size;
}

/// Returns the number of entries in the index of a stream of `stream_size` bytes.
constexpr uint64_t entries_of(uint64_t stream_size, uint64_t stride) noexcept {
  return div_up(stream_size, stride) + 1;
}
/// Returns the number of sums in the index of a stream of `stream_size` bytes.
constexpr uint64_t sums_of(uint64_t stream_size, uint64_t stride) noexcept {
  return div_up(stream_size, stride * strides_per_group);
}

/// Returns the most seek points that the index of a stream of `stream_size` bytes has.
constexpr uint64_t most_seek_points(Compression compression, uint64_t stream_size) noexcept {
  return compression == Compression::none ? 0 : stream_size / fewest_seek_bytes;
}

/// Returns an empty string if `index` contradicts neither itself nor a file of `file_size` bytes. Otherwise returns
/// what is wrong, for people: "contradicts itself or the file: ...".
///
/// An index that passes may still be wrong about what lies in the file. But it has the properties that the memory plan
/// relies on:
/// * Entries and bad regions ascend and lie inside the stream. The n records between two neighbours take b bytes, with
///   n (16 + smallest_record) <= b <= n (16 + largest_record).
/// * Every entry is the place of a good record, or {end, records} if no good record follows. In the first case, entry k
///   does not lie before k * stride. In both cases, the sizes stated allow all records before entry k to begin before
///   k * stride. So there are fewer than stride + 16 + largest_record good bytes from an entry to the next.
/// * No record is longer than largest_record, which is at most record_limit.
/// * Seek points ascend, lie inside the file and the stream, and their windows lie in the table of windows, each of at
///   most most_window_bytes bytes. Whether the stream can be inflated from there shows when it is inflated.
std::string contradiction(const FileIndex& index, uint64_t file_size, uint64_t record_limit);

}  // namespace feedline::io
