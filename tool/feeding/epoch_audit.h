// What the audit of a feed says, to scripts and to people.
#pragma once

#include <optional>
#include <string>

#include "feedline/feeder.h"
#include "tool/common/json.h"

namespace feedline::cli {

/// epoch, delivered, dropped, bad, expected, holds (null: open), why; null: no epoch was finished.
Json audit_json(const Report& report);

/// "audit", and what it says about the last epoch.
std::string audit_text(const Report& report);

/// What is wrong; none: nothing is.
std::optional<std::string> audit_failure(const Report& report);

}  // namespace feedline::cli
