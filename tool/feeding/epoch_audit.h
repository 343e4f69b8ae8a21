// Puts the audit of a feed into words: whether its epochs delivered all of their data exactly once. The audit compares
// sums of hashes of the records.
#pragma once

#include <optional>
#include <string>

#include "feedline/feeder.h"

namespace feedline::tool {

/// Returns a text for people: the feed's audit, which is a sum of hashes of its records, and whether the last finished
/// epoch delivered all of its data exactly once.
std::string audit_text(const Report& report);

/// Returns the error message if an epoch did not deliver each of its records exactly once; nullopt otherwise.
std::optional<std::string> audit_failure(const Report& report);

}  // namespace feedline::tool
