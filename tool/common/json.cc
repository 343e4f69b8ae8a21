#include "tool/common/json.h"

#include <algorithm>
#include <cstdio>
#include <span>

#include "base/base64.h"

namespace feedline::tool {
namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

bool is_printable(std::string_view bytes) {
  const auto control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
  };
  return std::none_of(bytes.begin(), bytes.end(), control) && is_utf8(bytes);
}

std::string printable(const std::string& text) {
  const bool good = is_printable(text) && text.find_first_of("\n\r\t") == std::string::npos;
  return good ? text : "hex " + hexadecimal(std::as_bytes(std::span(text)));
}

void print_document(const Json& document) { print(document_text(document)); }

void print_json_line(const Json& json) { print(json_text(json, -1)); }

}  // namespace feedline::tool
