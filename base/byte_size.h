// Sizes as people write them: "256KiB", "1.5GiB", "100MB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace feedline {

/// Returns the number of bytes that `text` names. `text` is a number and a unit: B, which may be left out, KB, MB, GB,
/// TB (powers of 1000), or KiB, MiB, GiB, TiB (powers of 1024). Letters of units may be upper or lower case.
/// Throws Error bad_pipeline if `text` has any other form, or if the size is negative, not a whole number of bytes, or
/// 2^62 bytes or more.
uint64_t parse_byte_size(std::string_view text);

/// Returns `bytes` as text for people, with at most one decimal: "256 KiB", "1.5 GiB". The unit is the largest one of
/// B, KiB, MiB, GiB and TiB that is not larger than the size.
std::string format_byte_size(uint64_t bytes);

}  // namespace feedline
