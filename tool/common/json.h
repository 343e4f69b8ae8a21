// The JSON that `feedline` prints for scripts, and text that may contain any bytes.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"

namespace feedline::tool {

/// Returns whether the bytes are UTF-8 without control characters other than tab and line ends.
bool is_printable(std::string_view bytes);

/// Returns `text`, which may hold any bytes, as one line that can be printed. If `text` is UTF-8 and has neither
/// control characters nor line ends, returns it unchanged. Otherwise returns its bytes as "hex 0a...".
std::string printable(const std::string& text);

/// Prints a command's only JSON document to standard output.
void print_document(const Json& document);
/// Prints `json` on one line to standard output. Adds no `feedline_json`, the version that print_document() adds.
void print_json_line(const Json& json);

}  // namespace feedline::tool
