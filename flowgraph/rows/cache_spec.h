// The pipeline's `cache` after validation.
#pragma once

#include <cstdint>
#include <string>

namespace feedline::flow {

enum class CacheWhere : uint8_t { memory, disk };
enum class CacheWhat : uint8_t { records, decoded, resized };

struct CacheSpec {
  CacheWhere where = CacheWhere::memory;
  CacheWhat what = CacheWhat::records;
  std::string dir;     // disk: absolute path; empty: the user's cache folder
  uint64_t limit = 0;  // bytes
  bool operator==(const CacheSpec&) const = default;
};

}  // namespace feedline::flow
