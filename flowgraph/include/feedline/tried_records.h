// What a few records say about a pipeline: see Feeder::try_records().
#pragma once

#include <cstdint>
#include <vector>

#include "feedline/error.h"

namespace feedline {

struct TriedRecords {
  uint64_t files = 0, records = 0;  // that were looked at
  uint64_t failed = 0;              // of these records
  std::vector<Error> errors;        // of these, the first of each feature and category; and what the data ends with
  bool raised = false;              // such an error ends the feed: errors.on_error is RAISE
  std::vector<Error> absent;        // features that a record may lack, and that all of these lack
};

}  // namespace feedline
