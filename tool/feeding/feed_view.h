// A feed as people watch it in a terminal: where it is, what limits its speed, and how busy each stage is.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/json.h"

namespace feedline::tool {

/// Appends the text to `lines`, in lines of at most `width` bytes. Cuts between words where that is possible.
void wrap(std::string text, size_t width, std::vector<std::string>& lines);

/// Returns lines of at most `width` columns that show a report (trainer_bridge/report_json.h). Rates are averages over
/// the `seconds` since `before`, an earlier report. If `before` is null, rates are averages over the whole feed, which
/// took `seconds`. Texts of the report are shown without control characters, because the report may come from a server
/// that cannot be trusted. Throws Json::exception if `report` is not a report.
std::vector<std::string> feed_view(const Json& report, const Json& before, double seconds, size_t width);

}  // namespace feedline::tool
