// The page of the monitor.
#pragma once

#include <string_view>

namespace feedline {

/// An HTML document that loads /report.json, /history.json and /plan.txt, and nothing else.
extern const std::string_view monitor_page;

}  // namespace feedline
