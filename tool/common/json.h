// The JSON that `feedline` writes for scripts: errors, and text that may contain any bytes.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "feedline/error.h"

namespace feedline::cli {

using Json = nlohmann::ordered_json;  // keeps fields in the order in which they were added

/// Returns an object with category, file, offset, record, feature and message; what does not apply is null.
Json to_json(const Error& error);

/// Returns the list of a feed's errors, followed by the error that ended the feed unless it is among them.
Json to_json(const std::vector<Error>& errors, const std::optional<Error>& last);

/// Returns whether the bytes are UTF-8 without control characters other than tab and line ends.
bool is_printable(std::string_view bytes);

std::string to_hex(std::string_view bytes);
std::string to_base64(std::string_view bytes);

/// Returns a command's document as text with a line end: its first key is `feedline_json`, the version of the documents,
/// which changes if a key changes its meaning or goes. Bytes that are not UTF-8, in a file name for example, become
/// U+FFFD.
std::string document_text(const Json& document);
/// Prints document_text() to standard output.
void print_document(const Json& document);
/// Prints JSON on one line, without a version: one record of many.
void print_json_line(const Json& json);

}  // namespace feedline::cli
