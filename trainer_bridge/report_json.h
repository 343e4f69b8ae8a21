// A Report as a JSON object.
#pragma once

#include "base/json.h"
#include "feedline/report.h"

namespace feedline {

/// Returns the keys of `to_json(report)`, without the version.
Json report_json(const Report& report);

}  // namespace feedline
