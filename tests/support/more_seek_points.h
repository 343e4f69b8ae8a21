// Gives an index more seek points than counting does, so that little data has many.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/index/index.h"
#include "io/records/inflate.h"

namespace feedline::test {

/// Sets the seek points of a compressed file's index to those that lie `spacing` bytes or more apart. `file` is the
/// content of the file.
inline void find_more_seek_points(io::FileIndex& index, std::span<const std::byte> file, uint64_t spacing) {
  io::Inflater inflater(index.compression);
  io::SeekPointList points;
  inflater.find_seek_points(spacing, [&](const io::SeekPoint& point, auto window) { points.add(point, window); });
  std::vector<std::byte> room(1 << 16);
  for (auto status = io::Inflater::Status::more; status == io::Inflater::Status::more;) {
    // With one byte at a time, the input ends within the header of nearly every block.
    const bool last = file.size() <= 1;
    std::span<const std::byte> in = file.first(file.empty() ? 0 : 1);
    std::span<std::byte> out = room;
    status = inflater.run(in, out, last);
    if (in.empty() && !file.empty()) file = file.subspan(1);
  }
  index.seek_points = points.take_entries();
  index.windows = points.take_windows();
}

}  // namespace feedline::test
