// Reads the requests to an HttpServer, which must be requests of HTTP/1.1 (RFC 9112). Refuses everything else.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "trainer_bridge/monitor/monitor_token.h"

namespace feedline {

struct HttpRequest {
  std::string path;    // "/metrics"
  std::string query;   // what follows the path after "?"
  std::string accept;  // the header Accept; empty if there is none
  bool other_site;     // whether a browser says that a page of another site has asked (Sec-Fetch-Site)
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
  /// If `later` is set, the server calls it once `wait` has gone by, and sends the response that it returns; `status`,
  /// `type` and `body` are not used. If the client goes before that, `later` is destroyed without a call. The response
  /// that it returns must not have a `later`.
  std::function<HttpResponse()> later = {};
  std::chrono::milliseconds wait{0};
};

/// Collects the head of a request as its bytes arrive. The results do not depend on the pieces in which the bytes
/// arrive.
class HttpRequestHead {
 public:
  /// `most_bytes` is the maximum size of the head together with the empty lines that some clients send before it.
  explicit HttpRequestHead(size_t most_bytes) noexcept : most_bytes_(most_bytes) {}

  /// The state of the head. `unfinished` means that more bytes are needed. `no_request` means that it is not the head
  /// of a request: it has control characters, as binary data has, or line ends that are not CR LF.
  enum class State { unfinished, complete, no_request, too_long };
  /// Adds bytes that have arrived, and returns the state. Must not be called again after it has returned a state that
  /// is not `unfinished`.
  State add(std::string_view bytes);

  /// Returns what has arrived of the head, without the empty line after it.
  std::string_view text() const noexcept { return std::string_view(text_).substr(0, text_.find("\r\n\r\n")); }
  /// Returns the first line, as far as it has arrived.
  std::string_view first_line() const noexcept { return std::string_view(text_).substr(0, text_.find("\r\n")); }

 private:
  size_t most_bytes_;
  size_t before_ = 0;  // bytes of empty lines
  std::string text_;
};

/// Says which clients are answered.
struct HttpAccess {
  /// What a client must show, unless it asks for a nonce. If this is null, clients need not show a token.
  const MonitorToken* token = nullptr;
  /// If true, and there is no token, the field Host must name an IP address or localhost.
  bool local_names = false;
};

/// Returns the request of a complete head. If the request is to be refused, or asks for a nonce, returns the response
/// to it.
std::variant<HttpRequest, HttpResponse> read_request(std::string_view head, const HttpAccess& access);

/// Returns a response that is a line of text.
HttpResponse refusal(int status, std::string_view why);

}  // namespace feedline
