// Sizes as people write them: "256KiB", "1.5GiB", "100MB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace feedline {

/// Units: B (or none), KB MB GB TB (powers of 1000), KiB MiB GiB TiB (powers of 1024), upper or lower case.
/// Throws Error bad_pipeline for anything else, and for negative, fractional-byte or too large sizes.
uint64_t parse_byte_size(std::string_view text);

/// The shortest of B, KiB, MiB, GiB, TiB with up to one decimal: "256 KiB", "1.5 GiB".
std::string format_byte_size(uint64_t bytes);

}  // namespace feedline
