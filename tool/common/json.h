// JSON as scripts get it from `feedline`: errors, and text that may hold any bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "feedline/error.h"

namespace feedline::cli {

using Json = nlohmann::ordered_json;  // fields in the order of writing

/// category, file, offset, record, feature, message; null where something does not apply.
Json to_json(const Error& error);

/// A feed's errors, then the one that ended it, unless it is among them.
Json to_json(const std::vector<Error>& errors, const std::optional<Error>& last);

/// UTF-8 without control characters other than tab and line ends.
bool is_printable(std::string_view bytes);

std::string to_hex(std::string_view bytes);
std::string to_base64(std::string_view bytes);

/// On one line (indent < 0) or indented, with a line end, to standard output. Bytes that are not UTF-8, in a file name
/// say, become U+FFFD.
void print_json(const Json& json, int indent = 2);

}  // namespace feedline::cli
