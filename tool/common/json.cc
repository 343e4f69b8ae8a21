#include "tool/common/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace feedline::tool {
bool is_printable(std::string_view bytes) {
  const auto control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
  };
  return std::none_of(bytes.begin(), bytes.end(), control) && is_utf8(bytes);
}

std::string printable(const std::string& text) {
  const bool good = is_printable(text) && text.find_first_of("\n\r\t") == std::string::npos;
  return good ? text : "hex " + to_hex(text);
}

std::string to_hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// RFC 4648, section 4.
std::string to_base64(std::string_view bytes) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; k++)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; k++) text += i + k <= bytes.size() ? digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

namespace {

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

void print_document(const Json& document) { print(document_text(document)); }

void print_json_line(const Json& json) { print(json_text(json, -1)); }

}  // namespace feedline::tool
