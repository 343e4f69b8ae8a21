// Gives an index more seek points than counting does, so that little data has many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/index/index.h"
#include "io/records/inflate.h"

namespace feedline::test {

/// Sets the seek points of a compressed file's index to those that lie `spacing` bytes or more apart. `file` is the
/// content of the file. It is inflated `step` bytes at a time: with one byte, an input ends within the header of nearly
/// every block.
inline void find_more_seek_points(io::FileIndex& index, std::span<const std::byte> file, uint64_t spacing,
                                  size_t step = 1) {
  io::Inflater inflater(index.compression);
  io::SeekPointList points;
  inflater.find_seek_points(spacing, [&](const io::SeekPoint& point, auto window) {
    points.add(point, window);
    return size_t{0};
  });
  std::vector<std::byte> room(1 << 16);
  for (auto status = io::Inflater::Status::more; status == io::Inflater::Status::more;) {
    const size_t size = std::min(step, file.size());
    std::span<const std::byte> in = file.first(size);
    std::span<std::byte> out = room;
    status = inflater.run(in, out, size == file.size());
    file = file.subspan(size - in.size());
  }
  index.seek_points = points.take_entries();
  index.windows = points.take_windows();
}

}  // namespace feedline::test
