// A Report as a JSON object.
#pragma once

#include "base/json.h"
#include "feedline/report.h"

namespace feedline {

/// Returns the document of to_json(report) without its first key, the version `feedline_json`.
Json report_json(const Report& report);

}  // namespace feedline
