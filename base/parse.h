// Reads a number, or an address with a port, from text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace feedline {

/// Returns the decimal number that the whole text is. Returns nullopt if the text is empty or anything else, or if the
/// number is out of the range of T.
template <typename T>
std::optional<T> parse_number(std::string_view text) noexcept {
  const char* const end = text.data() + text.size();
  T number{};
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

struct HostAndPort {
  std::string_view host, port;
};
/// Splits "node0:29501" or "[::1]:29501" at the last colon; the host is returned without its brackets. The port is
/// empty if the text has none.
inline HostAndPort split_host_and_port(std::string_view text) noexcept {
  size_t colon = text.rfind(':');
  if (colon != text.npos && text.find(']', colon) != text.npos) colon = text.npos;  // a colon of an IPv6 address
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return {host, colon == text.npos ? std::string_view() : text.substr(colon + 1)};
}

}  // namespace feedline
