#include "trainer_bridge/monitor/http_request.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/net/sockets.h"
#include "base/parse.h"
#include "trainer_bridge/monitor/http_message.h"

namespace feedline {
namespace {

/// Returns whether `text`, the bytes that have arrived, cannot be the head of a request (RFC 9112, section 2.2). Such a
/// text has control characters, as binary data has, or line ends that are not CR LF.
bool is_no_head(std::string_view text) {
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\r' && (i + 1 == text.size() || text[i + 1] == '\n')) continue;
    if (byte == '\n' && i > 0 && text[i - 1] == '\r') continue;
    if ((byte < 0x20 && byte != '\t') || byte == 0x7f) return true;
  }
  return false;
}

/// The header fields that the server looks at.
struct Fields {
  std::optional<std::string_view> host;
  std::string_view authorization, accept, site;
  bool two_hosts = false;

  /// Returns false if the head has a line that is not a field.
  bool read(std::string_view head) {
    return for_each_field(head, [&](std::string_view name, std::string_view value) {
      if (same_letters(name, "Host")) {
        two_hosts = host.has_value();
        host = value;
      }
      if (same_letters(name, "Authorization")) authorization = value;
      if (same_letters(name, "Accept")) accept = value;
      if (same_letters(name, "Sec-Fetch-Site")) site = value;
    });
  }
};

/// Returns whether the header Host names an IP address or localhost, at any port. A page of a different site can make a
/// browser connect to this server under that site's own name, after the site has changed the address of the name (DNS
/// rebinding).
bool is_local_name(std::string_view host) {
  const std::string name(split_host_and_port(host).host);
  return same_letters(name, "localhost") || net::is_ip_address(name);
}

}  // namespace

HttpRequestHead::State HttpRequestHead::add(std::string_view bytes) {
  text_ += bytes;
  size_t empty_lines = 0;
  while (std::string_view(text_).substr(empty_lines).starts_with("\r\n")) empty_lines += 2;
  text_.erase(0, empty_lines);
  before_ += empty_lines;
  if (before_ > most_bytes_) return State::too_long;
  const size_t room = most_bytes_ - before_, end = text_.find(end_of_head);
  const bool whole = end <= room;
  // If the head is too long, looks only at the bytes that are needed to find that out. So the answer does not depend on
  // the pieces in which the bytes arrive.
  const size_t looked_at = (whole ? end + 1 : room) + end_of_head.size() - 1;
  if (is_no_head(std::string_view(text_).substr(0, looked_at))) return State::no_request;
  if (whole) return State::complete;
  return text_.size() > looked_at ? State::too_long : State::unfinished;
}

HttpResponse refusal(int status, std::string_view why) { return {.status = status, .body = std::string(why) + "\n"}; }

std::variant<HttpRequest, HttpResponse> read_request(std::string_view head, const HttpAccess& access) {
  const HttpResponse no_request = refusal(400, "this is not a request of HTTP/1.1");
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  Fields fields;
  if (first == std::string_view::npos || first == last ||
      !fields.read(head.substr(std::min(line.size() + 2, head.size()))))
    return no_request;
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_http_token(method) || target.find(' ') != std::string_view::npos ||
      (version != "HTTP/1.1" && version != "HTTP/1.0"))
    return no_request;
  if (fields.two_hosts || (!fields.host && version == "HTTP/1.1"))
    return refusal(400, "a request of HTTP/1.1 must have the header Host exactly once");
  constexpr std::string_view scheme = "http://";
  // The target may be a whole URL, as in a request to a proxy (RFC 9112, section 3.2.2). Then the host in the URL
  // counts, and the header Host does not.
  if (same_letters(target.substr(0, scheme.size()), scheme)) {
    const size_t path = std::min(target.find_first_of("/?", scheme.size()), target.size());
    fields.host = target.substr(scheme.size(), path - scheme.size());
    target = path == target.size() ? "/" : target.substr(path);
  }
  const bool for_nonce = access.token && target == "/nonce";
  if (access.token && !for_nonce && !access.token->is_shown_by(fields.authorization, target))
    return refusal(401, fields.authorization.empty()
                            ? "the monitor needs a login: the user is feedline, and the password is the monitor's token"
                            : "the given token is not the token of this monitor");
  if (!access.token && access.local_names && !is_local_name(fields.host.value_or("localhost")))
    return refusal(403,
                   "a monitor without a token answers only at an IP address or localhost; use such an address, or "
                   "give the monitor a token");
  if (method != "GET" && method != "HEAD") return refusal(405, "the monitor answers only GET and HEAD");
  if (for_nonce) return HttpResponse{.body = access.token->make_nonce()};
  if (!target.starts_with('/')) return refusal(400, "the target of a request must begin with /");
  const size_t query = target.find('?');
  return HttpRequest{.path = std::string(target.substr(0, query)),
                     .query = query == std::string_view::npos ? "" : std::string(target.substr(query + 1)),
                     .accept = std::string(fields.accept),
                     .other_site = fields.site == "cross-site"};
}

}  // namespace feedline
