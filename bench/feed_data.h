// Records for the benches, as the peers' make_data.py has them, the same ones every time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>

namespace feedline::bench {

using Random = std::mt19937_64;

std::string noise(Random& random, size_t bytes);

/// A real position, one of the golden ones: "d" and "s".
std::string chess(Random& random);
/// "image" of `bytes` bytes and "label".
std::string picture(Random& random, size_t bytes);
/// 2.83 MB of bytes, "x".
std::string big(Random& random);
/// "x", 64 floats; "ids", 26 of them below a million; and "y", 0 or 1.
std::string click(Random& random);

/// Writes `records` of them, unless the file is there.
void make_file(const std::string& file, uint64_t records, const std::function<std::string(Random&)>& record);

}  // namespace feedline::bench
