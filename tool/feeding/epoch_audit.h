// Reports the audit of a feed to scripts and to people.
#pragma once

#include <optional>
#include <string>

#include "feedline/feeder.h"
#include "tool/common/json.h"

namespace feedline::cli {

/// Returns an object with epoch, delivered, dropped, bad, expected, holds (null: could not be compared) and why; null
/// if no epoch was finished.
Json audit_json(const Report& report);

/// Returns a text with the audit's sum and what it says about the last finished epoch.
std::string audit_text(const Report& report);

/// Returns what is wrong; nullopt: nothing is.
std::optional<std::string> audit_failure(const Report& report);

}  // namespace feedline::cli
