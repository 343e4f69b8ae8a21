#include "trainer_bridge/monitor/http_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/absolute_path.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/syscall_hooks.h"
#include "base/thread.h"
#include "feedline/error.h"

namespace feedline {
namespace {

using net::Socket;

constexpr std::string_view unix_prefix = "unix:";
constexpr size_t most_discarded = 1 << 20;  // the most bytes that are read from a client after its response
constexpr std::string_view still_working = "HTTP/1.1 102 Processing\r\n\r\n";

using ListenUnixOp = HookedCall<"listen at a path", ENOSPC>;  // socket, bind and listen of a Unix domain socket

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(Category::io_error, fmt::format("{}: {}", what, std::generic_category().message(error)));
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Error(Category::bad_pipeline, fmt::format("unix:{}: the path of a Unix socket may have at most {} bytes, but "
                                                    "this path has {}; choose a shorter path",
                                                    path, sizeof address.sun_path - 1, path.size()));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Socket unix_socket() {
  const int error = injected<ListenUnixOp>();
  Socket socket(error ? -1 : ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) fail("socket", error ? error : errno);
  return socket;
}

/// Returns whether this is the socket of a server that was killed: its file is there, and nobody listens.
bool is_dead_socket(const sockaddr_un& address) {
  struct stat file;
  if (lstat(address.sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  const Socket socket = unix_socket();
  return connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

Socket listen_at_path(const std::string& path) {
  const sockaddr_un address = unix_address(path);
  const auto* const raw = reinterpret_cast<const sockaddr*>(&address);
  Socket listener = unix_socket();
  fchmod(listener.fd(), 0600);  // on Linux, bind() gives this mode to the file that it makes
  const auto bind_it = [&] { return bind(listener.fd(), raw, sizeof address) == 0 ? 0 : errno; };
  int error = bind_it();
  if (error == EADDRINUSE && is_dead_socket(address) && unlink(path.c_str()) == 0) error = bind_it();
  if (error == 0 && listen(listener.fd(), SOMAXCONN) != 0) error = errno;
  if (error != 0) fail(fmt::format("listening at unix:{}", path), error);
  return listener;
}

/// Returns the device and the inode number of the file at a path; nullopt if there is no file.
std::optional<std::pair<dev_t, ino_t>> file_at(const std::string& path) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return std::nullopt;
  return std::pair(file.st_dev, file.st_ino);
}

Socket listen_at(const HttpAddress& address) {
  return address.path.empty() ? net::listen_at(address.ip) : listen_at_path(address.path);
}

std::string_view reason(int status) {
  constexpr std::pair<int, std::string_view> reasons[] = {{200, "OK"},
                                                          {400, "Bad Request"},
                                                          {401, "Unauthorized"},
                                                          {403, "Forbidden"},
                                                          {404, "Not Found"},
                                                          {405, "Method Not Allowed"},
                                                          {431, "Request Header Fields Too Large"},
                                                          {503, "Service Unavailable"}};
  for (const auto& [code, text] : reasons)
    if (code == status) return text;
  return "Internal Server Error";
}

/// Returns what `handler` returns. If it throws, returns a response of status 500 that says why.
HttpResponse called(const std::function<HttpResponse()>& handler) {
  try {
    return handler();
  } catch (const std::exception& error) {
    return refusal(500, error.what());
  }
}

/// Returns the bytes of a response. Its headers tell a browser not to store it, and to load nothing from other servers
/// for a page.
std::string response_bytes(const HttpResponse& response, bool with_body) {
  std::string text = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; "
      "style-src 'unsafe-inline'; img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'\r\n",
      response.status, reason(response.status), response.type, response.body.size());
  if (response.status == 401) text += "WWW-Authenticate: Basic realm=\"feedline\", charset=\"UTF-8\"\r\n";
  if (response.status == 405) text += "Allow: GET, HEAD\r\n";
  text += "\r\n";
  return with_body ? text + response.body : text;
}

std::optional<MonitorToken> checked(const std::string& token, const HttpLimits& limits) {
  if (token.size() > limits.token_bytes)
    throw Error(Category::bad_pipeline, fmt::format("the token of a monitor may have at most {} bytes, but this token "
                                                    "has {}; choose a shorter token",
                                                    limits.token_bytes, token.size()));
  return token.empty() ? std::optional<MonitorToken>() : MonitorToken(token);
}

}  // namespace

std::string HttpAddress::text() const {
  return path.empty() ? fmt::format("http://{}/", ip.text()) : fmt::format("{}{}", unix_prefix, path);
}

HttpAddress parse_http_address(std::string_view what, std::string_view text) {
  HttpAddress address;
  if (text.starts_with(unix_prefix)) {
    address.path = text.substr(unix_prefix.size());
    if (!address.path.empty()) return address;
  }
  const HostAndPort parts = split_host_and_port(text);
  const std::string host(parts.host == "localhost" ? "127.0.0.1" : parts.host);
  const auto port = parse_number<uint16_t>(parts.port);
  if (!port || !net::is_ip_address(host))
    throw Error(Category::bad_pipeline,
                fmt::format("{}: '{}' is not an address; write an IP address and a port, such as 127.0.0.1:9400 or "
                            "[::1]:9400, or the path of a Unix socket, such as unix:/run/feed.sock",
                            what, text));
  address.ip = net::resolve(host, *port).front();
  return address;
}

Socket connect_to(const HttpAddress& address, net::Deadline until) {
  if (address.path.empty()) return net::connect_to(address.ip, until);
  const sockaddr_un path = unix_address(address.path);
  Socket socket = unix_socket();
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&path), sizeof path) != 0) fail("connect", errno);
  return socket;
}

HttpServer::HttpServer(HttpAddress address, const std::string& token, HttpLimits limits)
    : address_(std::move(address)), token_(checked(token, limits)), limits_(limits), listener_(listen_at(address_)) {
  if (address_.path.empty()) {
    address_.ip = net::address_of(listener_);
    return;
  }
  // Keeps the absolute path, because the process may change its working directory. The server has begun to listen at
  // the path as it was given, because the absolute path may be too long for a socket.
  address_.path = absolute_path(address_.path).string();
  file_ = file_at(address_.path);
}

HttpServer::~HttpServer() {
  if (thread_.joinable()) {
    eventfd_write(ending_.fd(), 1);
    thread_.join();
  }
  // A forked child has the socket, too, and would keep the port in use. After shutdown() nobody listens.
  shutdown(listener_.fd(), SHUT_RDWR);
  // Removes the socket's file, but not a different file that somebody has put in its place. The inode number tells them
  // apart: as long as the listener is open, no other file gets the inode number of the socket's file.
  if (file_ && file_at(address_.path) == file_) unlink(address_.path.c_str());
}

void HttpServer::serve(Handler handler, std::function<void()> each_second) {
  handler_ = std::move(handler);
  each_second_ = std::move(each_second);
  thread_ = start_thread("feedline-http", [this] { run(); });
}

void HttpServer::run() {
  using namespace std::chrono_literals;
  Clock::time_point tick = Clock::now();
  bool warned = false;
  for (;;) try {
      if (Clock::now() >= tick) {
        each_second_();
        tick = std::max(tick + 1s, Clock::now());
      }
      Clock::time_point wake = tick;
      std::vector<pollfd> sockets = {{ending_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
      for (const Connection& connection : connections_) {
        wake = std::min(wake, connection.later ? connection.due : connection.until);
        const int end_of_client = connection.half_closed ? 0 : POLLRDHUP;
        const bool sends = connection.answered && !connection.ending;
        const int events = connection.later ? end_of_client : sends ? POLLOUT : POLLIN;
        sockets.push_back({connection.socket.fd(), static_cast<short>(events), 0});
      }
      net::wait_for(sockets, wake);
      if (sockets[0].revents) return;
      const auto now = Clock::now();
      auto connection = connections_.begin();
      for (size_t i = 2; i < sockets.size(); i++) {
        const bool is_due = connection->later && now >= connection->due;
        const bool lives = sockets[i].revents || is_due ? go_on(*connection) : true;
        connection = lives && now < connection->until ? std::next(connection) : connections_.erase(connection);
      }
      if (sockets[1].revents) accept_some();
    } catch (const std::exception& error) {
      // The system is short of memory or of descriptors. The server waits and then continues: the trainer does not need
      // the monitor, so an error of the monitor must not end the program.
      if (!std::exchange(warned, true))
        log_warning(
            fmt::format("the monitor has closed its connections after an error, and goes on: {}", error.what()));
      connections_.clear();
      pollfd end{ending_.fd(), POLLIN, 0};
      if (poll(&end, 1, 100) > 0) return;
    }
}

// Accepts at most half as many connections as the server may have, so that each new connection is read from at least
// once before later ones push it out.
void HttpServer::accept_some() {
  for (size_t i = 0; i < limits_.connections / 2; i++) {
    auto accepted = net::accept_from(listener_, Clock::now());
    if (!accepted) return;
    // A client that sends its request is served at once, so the oldest connection is probably one that sends nothing.
    if (connections_.size() >= limits_.connections) connections_.pop_front();
    connections_.push_back({.socket = std::move(accepted->first),
                            .until = Clock::now() + limits_.time,
                            .request = HttpRequestHead(limits_.request_bytes)});
  }
}

// Receives and sends as much as is possible without waiting. Returns false if the connection is to be closed.
bool HttpServer::go_on(Connection& connection) try {
  std::array<std::byte, 2048> bytes;
  if (connection.ending) {
    const auto received = net::receive_some(connection.socket, bytes);
    connection.discarded += received.value_or(0);
    return received && connection.discarded <= most_discarded;
  }
  while (!connection.answered) {
    const auto received = net::receive_some(connection.socket, bytes);
    if (!received) return false;
    if (*received == 0) return true;
    using State = HttpRequestHead::State;
    const State state = connection.request.add({reinterpret_cast<const char*>(bytes.data()), *received});
    if (state == State::unfinished) continue;
    connection.answered = true;
    respond(connection, state == State::no_request ? refusal(400, "this is not a request of HTTP/1.1")
                        : state == State::too_long
                            ? refusal(431, fmt::format("a request may have at most {} bytes", limits_.request_bytes))
                            : answer(connection.request.text()));
    if (connection.later) return true;
  }
  if (connection.later) {
    if (Clock::now() < connection.due) {
      // The client will send nothing more: either it has gone, or it has closed only its half of the connection and
      // waits. So the server sends `still_working`. If the client has gone, its system answers with a reset, which ends
      // the connection. HTTP/1.0 has no such response.
      if (std::exchange(connection.half_closed, true) || connection.request.first_line().ends_with("HTTP/1.0"))
        return false;
      net::send_some(connection.socket, std::as_bytes(std::span(still_working)));
      return true;
    }
    respond(connection, called(std::exchange(connection.later, nullptr)));
  }
  while (connection.sent < connection.response.size()) {
    const size_t sent =
        net::send_some(connection.socket, std::as_bytes(std::span(connection.response)).subspan(connection.sent));
    if (sent == 0) return true;
    connection.sent += sent;
  }
  // Waits until the client closes the connection. If the server closed it while it holds unread bytes, the system would
  // reset it, and the client might never receive the response.
  net::end_sending(connection.socket);
  connection.ending = true;
  return true;
} catch (const Error&) {  // the client has gone
  return false;
}

void HttpServer::respond(Connection& connection, HttpResponse response) const {
  if (response.later) {
    connection.later = std::move(response.later);
    connection.due = Clock::now() + response.wait;
    connection.until = connection.due + limits_.time;
  } else {
    connection.response = response_bytes(response, !connection.request.first_line().starts_with("HEAD "));
  }
}

HttpResponse HttpServer::answer(std::string_view head) const {
  const std::variant<HttpRequest, HttpResponse> read =
      read_request(head, {.token = token_ ? &*token_ : nullptr, .local_names = address_.path.empty()});
  if (const auto* refused = std::get_if<HttpResponse>(&read)) return *refused;
  return called([&] { return handler_(std::get<HttpRequest>(read)); });
}

}  // namespace feedline
