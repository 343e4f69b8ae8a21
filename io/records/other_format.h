// What a file is that somebody takes for a TFRecord file.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace feedline::io {

/// Returns what these bytes at the beginning of a file look like, and what to do with such a file, as the end of a
/// sentence; empty if they look like nothing that is known here. 512 bytes suffice for all formats but MDS, which is told
/// by what follows its table of offsets.
std::string_view other_format(std::span<const std::byte> first_bytes) noexcept;

}  // namespace feedline::io
