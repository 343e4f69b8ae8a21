// Requests to a monitor and answers of one: bytes in any pieces are read as a slow, simple reading of them says.
//
// covers: trainer_bridge/monitor/http_request.cc trainer_bridge/monitor/monitor_token.cc trainer_bridge/monitor/http_message.cc trainer_bridge/monitor/http_message.h
#include <arpa/inet.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/base64.h"
#include "draw.h"
#include "feedline/error.h"
#include "trainer_bridge/monitor/http_message.h"
#include "trainer_bridge/monitor/http_request.h"
#include "trainer_bridge/monitor/monitor_token.h"

namespace {

using namespace feedline;
using feedline::test::Draw;

std::string input;  // what is read, for the message of a failure

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n%s\n", what, input.c_str());
  std::abort();
}

constexpr size_t most_bytes = 300;

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 'a' - 'A');
  return text;
}

bool is_token(const std::string& text) {
  const std::string others = "!#$%&'*+-.^_`|~";
  for (const char c : lower(text))
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && others.find(c) == others.npos) return false;
  return !text.empty();
}

std::vector<std::string> split(const std::string& text, const std::string& at) {
  std::vector<std::string> parts = {""};
  for (size_t i = 0; i < text.size(); i++)
    if (text.compare(i, at.size(), at) == 0)
      parts.emplace_back(), i += at.size() - 1;
    else
      parts.back() += text[i];
  return parts;
}

std::string without_spaces(std::string text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.pop_back();
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.erase(0, 1);
  return text;
}

/// A head as text: its lines, and its fields with names in small letters. `wrong`: a line is no field.
struct Head {
  explicit Head(const std::string& text) {
    std::vector<std::string> lines = split(text, "\r\n");
    line = lines[0];
    for (size_t i = 1; i < lines.size(); i++) {
      const size_t colon = lines[i].find(':');
      const std::string name = lines[i].substr(0, colon);
      wrong |= colon == std::string::npos || !is_token(name);
      if (!wrong) fields.emplace_back(lower(name), without_spaces(lines[i].substr(colon + 1)));
    }
  }
  size_t count(const std::string& name) const {
    return static_cast<size_t>(std::ranges::count(fields, name, &std::pair<std::string, std::string>::first));
  }
  /// The value of the last field of this name.
  std::string last(const std::string& name) const {
    std::string value;
    for (const auto& [of, text] : fields)
      if (of == name) value = text;
    return value;
  }
  std::string line;
  std::vector<std::pair<std::string, std::string>> fields;
  bool wrong = false;
};

/// What should come of bytes that a client sends: 0: they are no whole head. 200: a request, or a nonce.
struct Wanted {
  int status = 200;
  HttpRequest request = {};
  bool nonce = false;
};

/// `nonce`: the only one that the monitor has given.
Wanted wanted_of(std::string bytes, const std::string& token, const std::string& nonce, bool local_names) {
  size_t before = 0;
  while (bytes.starts_with("\r\n")) bytes.erase(0, 2), before += 2;
  if (before > most_bytes) return {431};
  const size_t end = bytes.find("\r\n\r\n"), room = most_bytes - before;
  const bool whole = end != bytes.npos && end <= room;
  const std::string known = bytes.substr(0, whole ? end + 4 : room + 3);
  for (size_t i = 0; i < known.size(); i++) {
    const auto byte = static_cast<unsigned char>(known[i]);
    const bool ends_line = (byte == '\r' && (i + 1 == known.size() || known[i + 1] == '\n')) ||
                           (byte == '\n' && i > 0 && known[i - 1] == '\r');
    if ((byte < ' ' && byte != '\t' && !ends_line) || byte == 127) return {400};
  }
  if (!whole) return {bytes.size() > room + 3 ? 431 : 0};

  const Head head(bytes.substr(0, end));
  const std::vector<std::string> words = split(head.line, " ");
  if (words.size() != 3 || head.wrong || !is_token(words[0]) || (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0"))
    return {400};
  if (head.count("host") > 1 || (head.count("host") == 0 && words[2] == "HTTP/1.1")) return {400};
  std::string target = words[1], host = head.count("host") > 0 ? head.last("host") : "localhost";
  if (lower(target.substr(0, 7)) == "http://") {
    size_t path = 7;
    while (path < target.size() && target[path] != '/' && target[path] != '?') path++;
    host = target.substr(7, path - 7);
    target = path < target.size() ? target.substr(path) : "/";
  }
  const std::string given = head.last("authorization");
  const size_t space = std::min(given.find(' '), given.size());
  const std::string credentials = given.substr(std::min(given.find_first_not_of(' ', space), given.size()));
  const bool for_nonce = !token.empty() && target == "/nonce";
  if (!token.empty() && !for_nonce && given != token_proof(token, nonce, target) &&
      (lower(given.substr(0, space)) != "basic" || credentials != base64("feedline:" + token)))
    return {401};
  if (token.empty() && local_names) {
    std::string name = lower(host);
    if (const size_t colon = name.rfind(':'); colon != name.npos && name.find(']', colon) == name.npos)
      name.resize(colon);
    const bool quoted = name.size() > 2 && name.starts_with('[') && name.ends_with(']');
    const std::string ip = quoted ? name.substr(1, name.size() - 2) : name;
    unsigned char binary[16];
    const bool is_ip = inet_pton(AF_INET, ip.c_str(), binary) == 1 || inet_pton(AF_INET6, ip.c_str(), binary) == 1 ||
                       ip == "localhost";
    if (!is_ip) return {403};
  }
  if (words[0] != "GET" && words[0] != "HEAD") return {405};
  if (for_nonce) return {.nonce = true};
  if (!target.starts_with('/')) return {400};
  const size_t query = target.find('?');
  return {200,
          {.path = target.substr(0, query),
           .query = query == target.npos ? "" : target.substr(query + 1),
           .accept = head.last("accept"),
           .other_site = head.last("sec-fetch-site") == "cross-site"}};
}

/// Draws the bytes of a message: lines that the other side looks at, beside bounds and with changes.
std::string draw_message(Draw& draw, const std::string& first_line, std::span<const std::string> lines) {
  std::string text;
  for (uint64_t empty = draw.below(8) == 7 ? draw.near(most_bytes / 2) % 400 : 0; empty > 0; empty--) text += "\r\n";
  text += first_line + "\r\n";
  for (uint64_t count = draw.below(6); count > 0; count--) {
    std::string line = draw.one_of(lines);
    if (draw.below(4) == 3) line = std::string(draw.bytes(draw.below(40)));
    text += line + "\r\n";
  }
  if (draw.below(8) == 7) {  // a line with which the head is about as long as it may be
    const size_t length = draw.near(most_bytes) % (2 * most_bytes);
    if (length > text.size() + 4) text += "a: " + std::string(length - text.size() - 3, 'x') + "\r\n";
  }
  text += "\r\n";
  for (uint64_t changes = draw.below(4); changes > 0; changes--) {
    const size_t at = draw.below(text.size() + 1);
    const std::string_view some[] = {"\r", "\n", "\r\n", " ", ":", "\t", "\0", "\x7f", "\x80"};
    if (draw.coin())
      text.insert(at, draw.coin() ? std::string(draw.one_of(some)) : std::string(draw.bytes(draw.below(4))));
    else
      text.erase(at, draw.below(4));
  }
  return text;
}

void read_requests(Draw& draw) {
  static const MonitorToken monitor("secret");
  const std::string nonce = monitor.make_nonce();
  const std::string lines[] = {"Host: localhost",
                               "host: 127.0.0.1:80",
                               "Host:[::1]:80",
                               "Host: ::1",
                               "Host: a.example",
                               "HOST: LocalHost:1 ",
                               "Host:",
                               "Accept: text/plain",
                               "Accept: \t*/*\t ",
                               "Sec-Fetch-Site: cross-site",
                               "Sec-Fetch-Site: none",
                               "Authorization: Basic " + base64("feedline:secret"),
                               "authorization: basic   " + base64("feedline:secret"),
                               "Authorization: Basic " + base64("feedline:secre"),
                               "Authorization: Bearer x",
                               "Authorization: Basic",
                               "Authorization: " + token_proof("secret", nonce, "/"),
                               "authorization:" + token_proof("secret", nonce, "/a?b=c?d") + " ",
                               "Authorization: " + token_proof("other", nonce, "/"),
                               "Authorization: " + token_proof("secret", "123" + nonce.substr(nonce.find('-')), "/"),
                               "Authorization: Feedline " + nonce,
                               "Authorization: Feedline 99999999999999999-",
                               " folded: x"};
  static const std::string first_lines[] = {"GET / HTTP/1.1",
                                            "HEAD /a?b=c?d HTTP/1.0",
                                            "GET http://localhost/x HTTP/1.1",
                                            "GET HTTP://[::1]:80?y HTTP/1.1",
                                            "GET http:// HTTP/1.1",
                                            "POST / HTTP/1.1",
                                            "GET / HTTP/1.2",
                                            "GET  / HTTP/1.1",
                                            "G@T / HTTP/1.1",
                                            "GET * HTTP/1.1",
                                            "GET",
                                            "GET /nonce HTTP/1.1",
                                            "POST /nonce HTTP/1.1",
                                            "GET /nonce? HTTP/1.1",
                                            "GET http://a.example HTTP/1.0"};
  const std::string bytes = draw_message(draw, draw.one_of(first_lines), lines);
  input = bytes;
  const std::string token = draw.coin() ? "secret" : "";
  const bool local_names = draw.coin();
  // A client may send a request in any pieces, and more after it.
  HttpRequestHead head(most_bytes);
  auto state = HttpRequestHead::State::unfinished;
  for (size_t at = 0; at < bytes.size() && state == HttpRequestHead::State::unfinished;) {
    const std::string_view piece = std::string_view(bytes).substr(at, 1 + draw.below(256));
    state = head.add(piece);
    at += piece.size();
    require(head.text().size() <= most_bytes + 3 + 256, "no more is kept than may come");
  }
  const Wanted wanted = wanted_of(bytes, token, nonce, local_names);
  switch (state) {
    case HttpRequestHead::State::unfinished:
      return require(wanted.status == 0, "a head without an end is waited for");
    case HttpRequestHead::State::no_request:
      return require(wanted.status == 400, "bytes are refused that are no head");
    case HttpRequestHead::State::too_long:
      return require(wanted.status == 431, "a head is refused that is too long");
    case HttpRequestHead::State::complete:
      break;
  }
  const auto read =
      read_request(head.text(), {.token = token.empty() ? nullptr : &monitor, .local_names = local_names});
  if (const auto* response = std::get_if<HttpResponse>(&read)) {
    require(response->status == wanted.status && !response->body.empty(), "a head is refused for its reason");
    return require((response->status == 200) == wanted.nonce, "only a nonce is told without a request");
  }
  const auto& request = std::get<HttpRequest>(read);
  require(wanted.status == 200 && !wanted.nonce && request.path == wanted.request.path &&
              request.query == wanted.request.query && request.accept == wanted.request.accept &&
              request.other_site == wanted.request.other_site,
          "a request is read");
}

void read_answers(Draw& draw) {
  const std::string body(draw.bytes(draw.below(40)));
  const std::string length = std::to_string(draw.coin() ? draw.near(body.size()) : body.size());
  const std::string lines[] = {"Content-Length: " + length,
                               "content-length:" + std::to_string(body.size()),
                               "Content-Length: +1",
                               "Content-Length:",
                               "Content-Length: 99999999999999999999",
                               "Transfer-Encoding: chunked",
                               "Content-Type: text/plain",
                               "WWW-Authenticate: Basic realm=\"x\""};
  static const std::string first_lines[] = {"HTTP/1.1 200 OK", "HTTP/1.0 200",  "HTTP/1.1 2000 OK",
                                            "HTTP/1.1 401 Un", "HTTP/1.1",      "HTTP/1.1 ",
                                            "HTTP/1.1 20",     "HTTP/2 200 OK", "HTTP/1.1  200 OK"};
  std::string answer = draw_message(draw, draw.one_of(first_lines), lines) + body;
  if (draw.below(4) == 3) answer.resize(draw.below(answer.size() + 1));
  input = answer;
  const size_t end = answer.find("\r\n\r\n");
  bool whole = answer.starts_with("HTTP/1.") && end != answer.npos;
  std::string code, rest;
  if (whole) {
    const Head head(answer.substr(0, end));
    rest = answer.substr(end + 4);
    const size_t space = head.line.find(' ');
    code = space == std::string::npos ? "" : head.line.substr(space + 1, 3);
    const std::string after = space == std::string::npos ? "" : head.line.substr(std::min(space + 4, head.line.size()));
    whole = code.size() == 3 && code.find_first_not_of("0123456789") == code.npos &&
            (after.empty() || after[0] == ' ') && !head.wrong && head.count("transfer-encoding") == 0;
    for (const auto& [name, value] : head.fields)
      if (name == "content-length") {
        std::string digits = value;
        while (digits.size() > 1 && digits[0] == '0') digits.erase(0, 1);
        whole = whole && digits == std::to_string(rest.size());
      }
  }
  test::ExactBlock block(answer);
  try {
    require(body_of_answer(block.text()) == rest && whole && code == "200", "an answer is read");
  } catch (const Error& error) {
    const bool of_server = error.message().starts_with(code + ": ");
    require(error.category() == Category::io_error && (whole ? of_server && code != "200" : !of_server),
            "what is no answer is told from a refusal");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Draw draw(data, size);
  draw.coin() ? read_answers(draw) : read_requests(draw);
  return 0;
}
