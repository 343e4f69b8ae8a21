// Bytes of a file that are no good record.
#pragma once

#include <cstdint>
#include <string>

#include "feedline/error.h"

namespace feedline::io {

/// Bytes that are no good record.
struct BadRegion {
  uint64_t offset = 0, length = 0;
  uint64_t record = 0;  // good records before it
  Category category = Category::bad_data_crc;
  std::string message;  // empty: an index keeps those of the first regions only

  /// As the error that they gave.
  Error error(const std::string& file) const;
  bool operator==(const BadRegion&) const = default;
};

}  // namespace feedline::io
