// Checks that two indexes of one file are equal.
#pragma once

#include <algorithm>

#include "io/index/index.h"
#include "support/catch.h"

namespace feedline::test {

inline void check_same(const io::FileIndex& a, const io::FileIndex& b) {
  CHECK(a.compression == b.compression);
  CHECK(a.stride == b.stride);
  CHECK(a.records == b.records);
  CHECK(a.payload_bytes == b.payload_bytes);
  CHECK(a.smallest_record == b.smallest_record);
  CHECK(a.largest_record == b.largest_record);
  CHECK(a.end == b.end);
  CHECK(a.stream_size == b.stream_size);
  CHECK(a.audit == b.audit);
  CHECK(std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end()));
  CHECK(std::equal(a.sums.begin(), a.sums.end(), b.sums.begin(), b.sums.end()));
  CHECK(std::equal(a.seek_points.begin(), a.seek_points.end(), b.seek_points.begin(), b.seek_points.end()));
  CHECK(std::equal(a.windows.begin(), a.windows.end(), b.windows.begin(), b.windows.end()));
  CHECK(a.bad == b.bad);
}

}  // namespace feedline::test
