#include "tool/common/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>

namespace feedline::cli {
namespace {

Json known(int64_t number) { return number < 0 ? Json() : Json(number); }
Json known(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

Json to_json(const Error& error) {
  const Place& place = error.place();
  return {{"category", name(error.category())}, {"file", known(place.file)},       {"offset", known(place.offset)},
          {"record", known(place.record)},      {"feature", known(place.feature)}, {"message", error.message()}};
}

Json to_json(const std::vector<Error>& errors, const std::optional<Error>& last) {
  Json list = Json::array();
  std::set<std::string_view> told;
  const auto tell = [&](const Error& error) {
    if (told.insert(error.what()).second) list.push_back(to_json(error));
  };
  for (const Error& error : errors) tell(error);
  if (last) tell(*last);
  return list;
}

bool is_printable(std::string_view bytes) {
  const auto control = [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7f;
  };
  return std::none_of(bytes.begin(), bytes.end(), control) && is_utf8(bytes);
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

constexpr int document_version = 1;

std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

std::string document_text(const Json& document) {
  Json versioned = {{"feedline_json", document_version}};
  versioned.update(document);
  return text_of(versioned, 2);
}

void print_document(const Json& document) { print(document_text(document)); }

void print_json_line(const Json& json) { print(text_of(json, -1)); }

}  // namespace feedline::cli
