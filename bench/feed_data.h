// Records for the benchmarks, the same in every run. They are like those that peers/make_data.py makes for comparing
// feedline with other loaders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>

namespace feedline::bench {

using Random = std::mt19937_64;

/// Returns the place of a file of the source tree: below the folder that the environment variable FEEDLINE_SOURCE names,
/// or where the benchmark was compiled.
std::string in_source(const std::string& path);

/// Returns random bytes.
std::string noise(Random& random, size_t bytes);

/// Returns a real chess position, one of those in tests/golden/chess, with the features "d" and "s".
std::string chess(Random& random);
/// Returns "image", `bytes` random bytes, and "label".
std::string picture(Random& random, size_t bytes);
/// Returns "x", 2.83 MB of random bytes.
std::string big(Random& random);
/// Returns "x", 64 floats; "ids", 26 integers below a million; and "y", 0 or 1.
std::string click(Random& random);

/// Writes a file of `records` records, unless the file exists.
void make_file(const std::string& file, uint64_t records, const std::function<std::string(Random&)>& record);

}  // namespace feedline::bench
