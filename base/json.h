// Parses and writes JSON documents, and writes errors as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/error.h"

namespace feedline {

using Json = nlohmann::ordered_json;  // keeps fields in the order in which they were added

/// The version of the JSON documents that feedline writes. It changes if a key is removed, or gets a different meaning.
inline constexpr int document_version = 1;

/// Parses the JSON text of another program, and returns its value. Throws Json::exception if `text` is not valid JSON.
/// Throws Error io_error if the value is nested deeper than the documents of feedline, because parsing deeper values
/// could overflow the stack.
Json parse_json(std::string_view text);

/// Returns a JSON object with the keys category, file, offset, record, feature and message. The value of a key that
/// does not apply is null.
Json error_json(const Error& error);
/// Returns a JSON list with the error_json() of each error. Errors with the same text appear once.
Json errors_json(const std::vector<Error>& errors);

/// Returns `json` as text that ends with a newline. The text is indented by `indent` spaces, or on one line if `indent`
/// is -1. Bytes that are not UTF-8, in a file name for example, become U+FFFD.
std::string json_text(const Json& json, int indent);

/// Returns `document` as text, after adding `feedline_json`, the document_version, as its first key.
std::string document_text(const Json& document);

}  // namespace feedline
