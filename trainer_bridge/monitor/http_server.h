// A small HTTP/1.1 server for a few pages that a program shows of itself. It answers GET and HEAD, one request for each
// connection (RFC 9112), on a thread of its own. What a client can make it hold is bounded: see HttpLimits.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/net/sockets.h"
#include "trainer_bridge/monitor/http_request.h"

namespace feedline {

struct HttpLimits {
  size_t connections = 32;               // at least 2; a further connection ends the oldest one
  size_t request_bytes = 8 << 10;        // of the request line with all headers
  size_t token_bytes = 4 << 10;          // of a token; a request must have room for such a token
  std::chrono::milliseconds time{5000};  // from accepting a connection to the end of the response, without its `wait`
};

/// The address at which a server listens.
struct HttpAddress {
  net::Address ip;           // if `path` is empty
  std::string path;          // of a Unix domain socket
  std::string text() const;  // "http://127.0.0.1:9400/" or "unix:/run/feed.sock"
};

/// Returns the address that "127.0.0.1:9400", "[::1]:0", "localhost:9400" or "unix:/run/feed.sock" names. For any other
/// text throws Error bad_pipeline, whose message begins with `what`.
HttpAddress parse_http_address(std::string_view what, std::string_view text);

/// Returns a connection to a server. Throws Error io_error.
net::Socket connect_to(const HttpAddress& address, net::Deadline until);

class HttpServer {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  /// Listens at `address`; connections wait until serve() is called. Only this user can connect to a Unix domain
  /// socket. If a server has ended and left the file of its socket at the path, the new file replaces that file. If
  /// `token` is not empty, a client must show that it knows the token (monitor_token.h). Throws Error bad_pipeline if
  /// the token has more than limits.token_bytes bytes, or if the path of a socket is too long. Throws Error io_error if
  /// another program listens at the address, or if the system refuses a request.
  HttpServer(HttpAddress address, const std::string& token, HttpLimits limits = {});
  /// Ends the thread and all connections, at once. Removes the file of a Unix domain socket, unless a different file
  /// has replaced it.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Starts to answer requests. `handler` is called on the server's thread; if it throws, the client gets status 500.
  /// `each_second` is called on that thread about once a second. Throws std::system_error if the thread cannot be
  /// started.
  void serve(Handler handler, std::function<void()> each_second);

  /// Returns the address, with the port that the system has chosen if it was 0, and with an absolute path.
  const HttpAddress& address() const noexcept { return address_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    net::Socket socket;
    Clock::time_point until;  // when the connection is closed if it has not ended before
    HttpRequestHead request;
    std::string response = {};
    size_t sent = 0;  // bytes of the response
    bool answered = false;
    bool ending = false;                       // the response has been sent, and the sending side is shut down
    size_t discarded = 0;                      // bytes that the client has sent since then
    bool half_closed = false;                  // the client, which waits for `later`, will send nothing more
    std::function<HttpResponse()> later = {};  // makes the response
    Clock::time_point due = {};                // when `later` is to be called
  };

  void run();
  void accept_some();
  bool go_on(Connection& connection);
  void respond(Connection& connection, HttpResponse response) const;
  HttpResponse answer(std::string_view head) const;

  HttpAddress address_;
  const std::optional<MonitorToken> token_;
  const HttpLimits limits_;
  // An eventfd that ends the thread. It is made before the listener: if it cannot be made, no file of a socket is left.
  const net::Socket ending_ = net::make_event();
  net::Socket listener_;
  std::optional<std::pair<dev_t, ino_t>> file_;  // device and inode number of the socket's file; nullopt without a file
  Handler handler_;
  std::function<void()> each_second_;
  std::list<Connection> connections_;  // the oldest first; used only by the thread
  std::thread thread_;
};

}  // namespace feedline
