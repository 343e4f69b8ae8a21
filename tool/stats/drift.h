// Compares statistics of data with earlier ones: what has drifted, and by how much.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace feedline::tool {

/// Bounds for differences from earlier statistics. All bounds are shares: 0.1 means 10 %.
struct DriftBounds {
  // For labels: at most this share of the values may have another label than before (the total variation distance). For
  // other numbers: at every x, the share of the values up to x may change by at most this.
  double shift = 0.1;
  // The largest distance of a value from the earlier range, as a share of the width of that range.
  double range = 0.1;
  // The largest rise of each of three shares: of missing values, of values that are not finite, and of bad records.
  double missing = 0.01;
  // The share of the values that may have labels which no value had before.
  double new_labels = 0;
};

struct Drift {
  // `kind` is output, type, empty, labels, new_labels, shift, range, missing, not_finite or bad_records. The kind
  // bad_records concerns the whole data, so `output` is empty.
  std::string output, kind, message;
  double found = 0, bound = 0;  // 0 for kinds without a bound
};

/// Reads what `feedline stats --json` printed to a file. Throws Error io_error if the file cannot be opened, and
/// bad_pipeline if it holds something else.
Json read_statistics(const std::string& file);

/// Returns the drifts that exceed their bounds, and all drifts of kinds without a bound. The kind bad_records comes
/// first, then the drifts are in the order of the outputs. Throws Json::exception if one of the documents was not made
/// by stats_json().
std::vector<Drift> find_drift(const Json& before, const Json& now, const DriftBounds& bounds);

/// Returns the drifts and the bounds as JSON.
Json drift_json(const std::vector<Drift>& drifts, const DriftBounds& bounds);

}  // namespace feedline::tool
