// Says how a stage of the feed has spent its time.
#pragma once

#include <cstdint>
#include <string>

namespace feedline {

struct StageReport {
  std::string name;   // the stage: read, inflate, parse, assemble, unpack 0, ...
  double busy_s = 0;  // seconds that all its threads together worked on messages; for a copy: seconds on the GPU
  double wait_s = 0;  // seconds in which work was there, but a slot, an inflater or a buffer was lacking
  uint64_t messages = 0;
  // The number of messages that are in the stage or wait for it now. For unpack and upload: the number of finished
  // batches that wait for next().
  int64_t queue = 0;
};

}  // namespace feedline
