// The page of the monitor.
#pragma once

#include <string>

namespace feedline {

/// Returns an HTML document that loads /report.json, /history.json and /plan.txt, and nothing else.
std::string monitor_page();

}  // namespace feedline
