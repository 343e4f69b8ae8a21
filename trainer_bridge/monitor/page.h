// The page of the monitor.
#pragma once

#include <string>

namespace feedline {

/// Returns an HTML document. It loads /report.json, /history.json, /ranks.json, /system.json, /sample.json and
/// /plan.txt from the monitor, and nothing else.
std::string monitor_page();

}  // namespace feedline
