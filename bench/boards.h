// Records like those of a chess network's data, for benches that feed little else: 229 bytes, the board's planes first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "feedline/records.h"

namespace feedline::bench {

inline constexpr int64_t board_records = 400'000;

/// A file of them in the folder, 98 MB; made where it is not yet there.
inline std::string make_boards(const std::string& dir) {
  std::string file = dir + "/boards.tfrecord";
  std::filesystem::create_directories(dir);
  if (std::filesystem::exists(file)) return file;
  RecordWriter writer(file);
  std::string record(229, '\0');
  for (int64_t i = 0; i < board_records; i++) {
    for (size_t b = 0; b < record.size(); b++) record[b] = static_cast<char>(i * 131 + static_cast<int64_t>(b) * b);
    writer.write(std::as_bytes(std::span(record)));
  }
  writer.close();
  return file;
}

}  // namespace feedline::bench
