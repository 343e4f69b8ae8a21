// Messages of HTTP/1.1. A head is a first line and fields, each of which ends with CR LF (RFC 9112).
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace feedline {

/// The text at which a head ends: the line end of its last field, and an empty line.
inline constexpr std::string_view end_of_head = "\r\n\r\n";

/// Returns whether the text is a token of HTTP (RFC 9110, section 5.6.2), such as a method or the name of a field.
bool is_http_token(std::string_view text) noexcept;

/// Returns whether the texts are equal if the case of ASCII letters is ignored.
bool same_letters(std::string_view a, std::string_view b) noexcept;

/// Calls f(name, value) for each field of `fields`, which are the lines of a head after its first line. Returns false
/// at the first line that is not a field, such as one that begins with a space.
template <typename F>
bool for_each_field(std::string_view fields, F&& f) {
  constexpr std::string_view spaces = " \t";
  while (!fields.empty()) {
    const std::string_view line = fields.substr(0, fields.find("\r\n"));
    fields.remove_prefix(std::min(line.size() + 2, fields.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_http_token(line.substr(0, colon))) return false;
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(spaces), value.size()));
    value.remove_suffix(value.size() - (value.find_last_not_of(spaces) + 1));
    f(line.substr(0, colon), value);
  }
  return true;
}

/// Returns the body of `answer`, which is everything that a server has sent until it closed the connection. Throws
/// Error io_error if that is not an answer of HTTP, or not a complete one. Also throws Error io_error if the status is
/// not 200; the message is then the status and the body.
std::string body_of_answer(std::string_view answer);

}  // namespace feedline
