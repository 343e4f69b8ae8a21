// The result of Feeder::try_records(), which makes rows of a few records to check whether a pipeline fits its data.
#pragma once

#include <cstdint>
#include <vector>

#include "feedline/error.h"

namespace feedline {

struct TriedRecords {
  uint64_t files = 0, records = 0;  // how many were looked at
  // How many of `records` have a result: all their rows were made, or the record was refused.
  uint64_t made = 0;
  uint64_t failed = 0;  // how many of `records` were refused
  // What was wrong with the records: the first error of each feature and category, and the error at which the data
  // ends, if there is one.
  std::vector<Error> errors;
  bool raised = false;        // whether errors.on_error is RAISE, so that any of `errors` would end the feed
  std::vector<Error> absent;  // features that a record may lack, and that all of `records` lack
};

}  // namespace feedline
