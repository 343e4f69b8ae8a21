// Sizes as people write them: "256KiB", "1.5GiB", "100MB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace feedline {

/// Returns the number of bytes that `text` names: a number and a unit. Units, in upper or lower case: B (or none),
/// KB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024).
/// Throws Error bad_pipeline if `text` is anything else, or if the size is negative, no whole number of bytes, or 2^62
/// bytes or more.
uint64_t parse_byte_size(std::string_view text);

/// Returns the size for people, in the largest of the units B, KiB, MiB, GiB and TiB that does not exceed it, with at
/// most one decimal: "256 KiB", "1.5 GiB".
std::string format_byte_size(uint64_t bytes);

}  // namespace feedline
