// Describes damage: a region of a file that holds no good record.
#pragma once

#include <cstdint>
#include <string>

#include "feedline/error.h"

namespace feedline::io {

/// A region of a file that holds no good record.
struct BadRegion {
  uint64_t offset = 0, length = 0;  // bytes of the file, or of the inflated stream of a compressed file
  uint64_t record = 0;              // the number of good records before the region
  Category category = Category::bad_data_crc;
  std::string message;  // what is wrong; empty if it was not kept, as an index keeps only the first messages

  /// Returns the region as an Error whose place is in `file`.
  Error error(const std::string& file) const;
  bool operator==(const BadRegion&) const = default;
};

}  // namespace feedline::io
