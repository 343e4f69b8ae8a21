#include "trainer_bridge/monitor/http_message.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdint>

#include "base/parse.h"
#include "feedline/error.h"

namespace feedline {

bool is_http_token(std::string_view text) noexcept {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
    return std::isalnum(c) || others.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool same_letters(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); }, [](unsigned char c) { return std::tolower(c); });
}

std::string body_of_answer(std::string_view answer) {
  constexpr std::string_view version = "HTTP/1.", ok = "200";
  const auto refuse = [](const std::string& why) { throw Error(Category::io_error, why); };
  const auto no_monitor = [&] { refuse("the program at this address is not a feedline monitor; check the address"); };
  const size_t end = answer.find(end_of_head);
  const std::string_view line = answer.substr(0, answer.find("\r\n"));
  if (!answer.starts_with(version) || end == std::string_view::npos) no_monitor();
  const std::string_view status = line.substr(std::min(line.find(' '), line.size() - 1) + 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string_view code = status.substr(0, 3);
  if (code.size() < 3 || !std::ranges::all_of(code, is_digit) || (status.size() > 3 && status[3] != ' ')) no_monitor();
  std::string_view body = answer.substr(end + end_of_head.size());
  const bool are_fields = for_each_field(
      answer.substr(line.size() + 2, end - std::min(end, line.size() + 2)),
      [&](std::string_view name, std::string_view value) {
        if (same_letters(name, "Transfer-Encoding")) no_monitor();
        if (!same_letters(name, "Content-Length")) return;
        const auto length = parse_number<uint64_t>(value);
        if (!length) return no_monitor();
        if (*length != body.size())
          refuse(fmt::format("the answer has {} bytes, but its Content-Length is {}; ask again", body.size(), *length));
      });
  if (!are_fields) no_monitor();
  if (code == ok) return std::string(body);
  while (body.ends_with('\n')) body.remove_suffix(1);
  throw Error(Category::io_error, fmt::format("{}: {}", code, body));
}

}  // namespace feedline
