// What a stage of the feed has done with its time.
#pragma once

#include <cstdint>
#include <string>

namespace feedline {

struct StageReport {
  std::string name;   // read, inflate, parse, assemble, unpack 0, ...
  double busy_s = 0;  // of all threads together, inside the stage's bodies
  double wait_s = 0;  // while work was there, but no slot or buffer for it
  uint64_t messages = 0;
  int64_t queue = 0;  // messages or buffers that wait behind it now
};

}  // namespace feedline
