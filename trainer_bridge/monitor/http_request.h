// What an HttpServer is asked: reads requests of HTTP/1.1 (RFC 9112), and refuses what is none.
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
  /// If it is set, it makes the answer once `wait` has gone by, and the rest is not used. It is destroyed without a
  /// call if the client goes before. It sets no `later` itself.
  std::function<HttpResponse()> later = {};
  std::chrono::milliseconds wait{0};
};

/// Collects the head of a request as its bytes arrive. What it says does not depend on the pieces in which they do.
class HttpRequestHead {
 public:
  /// `most_bytes`: of the head, and of the empty lines that some clients send before it.
  explicit HttpRequestHead(size_t most_bytes) noexcept : most_bytes_(most_bytes) {}

  /// unfinished: more bytes are needed. no_request: it has control characters, as binary data has, or ends of lines that
  /// are not CR LF.
  enum class State { unfinished, complete, no_request, too_long };
  /// Adds bytes that have arrived. Not to be called again once the state is another than `unfinished`.
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

/// Who is answered.
struct HttpAccess {
  const MonitorToken* token = nullptr;  // what a client must show, unless it asks for a nonce; null: nothing
  bool local_names = false;             // whether without a token the field Host must name an IP address or localhost
};

/// Returns what a whole head asks for, or the response to it: a refusal, or a nonce.
std::variant<HttpRequest, HttpResponse> read_request(std::string_view head, const HttpAccess& access);

/// Returns a response that is a line of text.
HttpResponse refusal(int status, std::string_view why);

}  // namespace feedline
