// Recognises files of other formats that are mistaken for TFRecord files.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace feedline::io {

/// Returns a text, the end of a sentence, that says which format a file with these first bytes seems to have, and what
/// to do with the file. The text is empty if the bytes look like none of the formats that are known here. 512 bytes
/// suffice for every format except MDS, which is recognised by what follows its table of offsets.
std::string_view other_format(std::span<const std::byte> first_bytes) noexcept;

}  // namespace feedline::io
