// JSON documents: their version, and errors in them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "feedline/error.h"

namespace feedline {

using Json = nlohmann::ordered_json;  // keeps fields in the order in which they were added

/// Returns an object with category, file, offset, record, feature and message; what does not apply is null.
Json error_json(const Error& error);
/// Returns a list of such objects, each error once.
Json errors_json(const std::vector<Error>& errors);

/// Returns JSON as text with a line end; indented by `indent` spaces, or on one line if that is -1. Bytes that are not
/// UTF-8, in a file name for example, become U+FFFD.
std::string json_text(const Json& json, int indent);

/// Returns a document as text: its first key is `feedline_json`, the version of the documents, which changes if a key
/// changes its meaning or goes.
std::string document_text(const Json& document);

}  // namespace feedline
