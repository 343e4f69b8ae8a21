// Tells people what the audit of a feed says.
#pragma once

#include <optional>
#include <string>

#include "feedline/feeder.h"

namespace feedline::cli {

/// Returns a text with the audit's sum and what it says about the last finished epoch.
std::string audit_text(const Report& report);

/// Returns what is wrong; nullopt: nothing is.
std::optional<std::string> audit_failure(const Report& report);

}  // namespace feedline::cli
