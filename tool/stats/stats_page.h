// Statistics as a page for a browser.
#pragma once

#include <string>

#include "base/json.h"

namespace feedline::tool {

/// Returns what stats_json() says as one HTML page, with a histogram of each row of numbers. The page needs neither
/// network nor scripts, and is light or dark as the reader's system. Names may hold any bytes.
std::string stats_page(const Json& statistics);

}  // namespace feedline::tool
