// Whether an index can be true: what every index has to pass that comes from a disk or from another rank.
#pragma once

#include <cstdint>
#include <string>

#include "io/index/index.h"

namespace feedline::io {

/// Whether a file of `file_size` bytes can hold so many bytes of records. Deflate makes 1032 bytes of one at most.
constexpr bool can_be_stream(Compression compression, uint64_t stream_size, uint64_t file_size) noexcept {
  return compression == Compression::none ? stream_size == file_size : stream_size / 1032 <= file_size;
}

/// Rows that an index of a stream of so many bytes has.
constexpr uint64_t parts_of(uint64_t stream_size, uint64_t part) noexcept {
  return stream_size / part + (stream_size % part != 0);
}
constexpr uint64_t entries_of(uint64_t stream_size, uint64_t stride) noexcept {
  return parts_of(stream_size, stride) + 1;
}
constexpr uint64_t sums_of(uint64_t stream_size, uint64_t stride) noexcept {
  return parts_of(stream_size, stride * strides_per_group);
}

/// "makes no sense: ...", for people; empty where `index` contradicts neither itself nor the file of `file_size` bytes.
///
/// An index that passes may still be wrong about what lies in the file, but it keeps what a plan of memory relies on:
/// * Entries and bad regions ascend and lie inside the stream. Between two neighbours n records take b bytes, with
///   n (16 + smallest_record) <= b <= n (16 + largest_record).
/// * A good record begins at each entry but those that are the end, none before k * stride; and those before it may
///   begin before k * stride. So there are less than stride + 16 + largest_record good bytes from an entry to the next.
/// * No record is longer than largest_record, which is at most record_limit.
std::string contradiction(const FileIndex& index, uint64_t file_size, uint64_t record_limit);

}  // namespace feedline::io
