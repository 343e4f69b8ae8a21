#include "trainer_bridge/monitor/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "base/absolute_path.h"
#include "base/base64.h"
#include "base/log.h"
#include "base/syscall_hooks.h"
#include "base/thread.h"
#include "feedline/error.h"

namespace feedline {
namespace {

using gpu::Socket;

constexpr std::string_view unix_prefix = "unix:";
constexpr std::string_view end_of_head = "\r\n\r\n";
constexpr std::string_view still_working = "HTTP/1.1 102 Processing\r\n\r\n";

struct ListenUnixOp {  // socket, bind and listen of a Unix domain socket
  static constexpr const char* name = "listen at a path";
  static constexpr int error = ENOSPC;
};
struct EventOp {
  static constexpr const char* name = "eventfd of a server";
  static constexpr int error = EMFILE;
};

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(Category::io_error, fmt::format("{}: {}", what, std::generic_category().message(error)));
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Error(Category::bad_pipeline, fmt::format("unix:{}: the path of a socket has at most {} bytes, this has {}",
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
  fchmod(listener.fd(), 0600);  // on Linux the file that bind() makes takes this mode
  const auto bind_it = [&] { return bind(listener.fd(), raw, sizeof address) == 0 ? 0 : errno; };
  int error = bind_it();
  if (error == EADDRINUSE && is_dead_socket(address) && unlink(path.c_str()) == 0) error = bind_it();
  if (error == 0 && listen(listener.fd(), SOMAXCONN) != 0) error = errno;
  if (error != 0) fail(fmt::format("listening at unix:{}", path), error);
  return listener;
}

/// Returns the device and the number of the file at a path; nullopt if there is none.
std::optional<std::pair<dev_t, ino_t>> file_at(const std::string& path) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) return std::nullopt;
  return std::pair(file.st_dev, file.st_ino);
}

Socket listen_at(const HttpAddress& address) {
  return address.path.empty() ? gpu::listen_at(address.ip) : listen_at_path(address.path);
}

/// Returns whether the texts are equal. Takes a time that depends on the length of `given` alone, so that it tells
/// nothing of `secret`.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  uint32_t differs = given.size() != secret.size();
  for (size_t i = 0; i < given.size(); i++)
    differs |= static_cast<uint8_t>(given[i]) ^ static_cast<uint8_t>(secret[i % secret.size()]);
  return differs == 0;
}

/// Returns whether what has arrived can be no head of a request (RFC 9112, section 2.2): it has control characters, as
/// binary data has, or ends of lines that are not CR LF.
bool is_no_head(std::string_view text) {
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\r' && (i + 1 == text.size() || text[i + 1] == '\n')) continue;
    if (byte == '\n' && i > 0 && text[i - 1] == '\r') continue;
    if ((byte < 0x20 && byte != '\t') || byte == 0x7f) return true;
  }
  return false;
}

/// Returns whether the text is a token of HTTP (RFC 9110, section 5.6.2), such as a method or the name of a header.
bool is_token(std::string_view text) {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::ranges::all_of(text, [&](unsigned char c) {
    return std::isalnum(c) || others.find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, {}, [](unsigned char c) { return std::tolower(c); }, [](unsigned char c) { return std::tolower(c); });
}

/// Calls f(name, value) for each header field. Returns false if a line is none, such as one that goes on with a space.
template <typename F>
bool for_each_field(std::string_view head, F&& f) {
  constexpr std::string_view spaces = " \t";
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(line.size() + 2, head.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) return false;
    std::string_view value = line.substr(colon + 1);
    value.remove_prefix(std::min(value.find_first_not_of(spaces), value.size()));
    value.remove_suffix(value.size() - (value.find_last_not_of(spaces) + 1));
    f(line.substr(0, colon), value);
  }
  return true;
}

/// The header fields that the server looks at.
struct Fields {
  std::optional<std::string_view> host;
  std::string_view authorization, accept, site;
  bool two_hosts = false;

  /// Returns false if the head has a line that is no field.
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

/// Returns what follows "Basic" in any case, and spaces; empty if the text is something else (RFC 7617).
std::string_view basic_credentials(std::string_view authorization) {
  const size_t end = std::min(authorization.find(' '), authorization.size());
  if (!same_letters(authorization.substr(0, end), "Basic")) return {};
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' ', end), authorization.size()));
  return authorization;
}

/// Returns whether the header Host names an IP address or localhost, at any port. A page of another site can make a
/// browser connect here under that site's own name, whose address it has changed (DNS rebinding).
bool is_local_name(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) host = host.substr(0, colon);
  std::string name(host);
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  std::array<unsigned char, sizeof(in6_addr)> binary;
  return same_letters(name, "localhost") || inet_pton(AF_INET, name.c_str(), binary.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), binary.data()) == 1;
}

HttpResponse refusal(int status, std::string_view why) { return {.status = status, .body = std::string(why) + "\n"}; }

std::string_view reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

/// Returns what `handler` returns, or why it has failed.
HttpResponse called(const std::function<HttpResponse()>& handler) {
  try {
    return handler();
  } catch (const std::exception& error) {
    return refusal(500, error.what());
  }
}

/// Returns the bytes of a response. Nothing is kept by browsers, and a page may load nothing from elsewhere.
std::string bytes_of(const HttpResponse& response, bool with_body) {
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

/// Returns what the header Authorization has after "Basic"; empty if there is no token.
std::string credentials_of(const std::string& token, const HttpLimits& limits) {
  if (token.size() > limits.token_bytes)
    throw Error(Category::bad_pipeline, fmt::format("the token of a monitor has at most {} bytes, this has {}",
                                                    limits.token_bytes, token.size()));
  return token.empty() ? "" : std::string(basic_credentials(http_credentials(token)));
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
  const size_t colon = text.rfind(':');
  std::string host(text.substr(0, colon));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  std::array<unsigned char, sizeof(in6_addr)> binary;
  const bool is_ip =
      inet_pton(AF_INET, host.c_str(), binary.data()) == 1 || inet_pton(AF_INET6, host.c_str(), binary.data()) == 1;
  const std::string_view digits = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (!is_ip || digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    throw Error(Category::bad_pipeline,
                fmt::format("{}: '{}' is no address; write an IP address and a port, such as 127.0.0.1:9400 or "
                            "[::1]:9400, or the path of a Unix socket, such as unix:/run/feed.sock",
                            what, text));
  address.ip = gpu::resolve(host, port).front();
  return address;
}

std::string http_credentials(std::string_view token) { return "Basic " + base64(fmt::format("feedline:{}", token)); }

Socket connect_to(const HttpAddress& address, gpu::Deadline until) {
  if (address.path.empty()) return gpu::connect_to(address.ip, until);
  const sockaddr_un path = unix_address(address.path);
  Socket socket = unix_socket();
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&path), sizeof path) != 0) fail("connect", errno);
  return socket;
}

HttpServer::HttpServer(HttpAddress address, const std::string& token, HttpLimits limits)
    : address_(std::move(address)),
      credentials_(credentials_of(token, limits)),
      limits_(limits),
      listener_(listen_at(address_)),
      ending_(injected<EventOp>() ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!ending_) fail("eventfd", EMFILE);
  if (address_.path.empty()) {
    address_.ip = gpu::address_of(listener_);
    return;
  }
  // The process may go to another folder. It listens at the path as it was given, which may be short enough where the
  // absolute one is not.
  address_.path = absolute_path(address_.path).string();
  file_ = file_at(address_.path);
}

HttpServer::~HttpServer() {
  if (thread_.joinable()) {
    eventfd_write(ending_.fd(), 1);
    thread_.join();
  }
  // A child that was forked has the socket, too, and would keep the port; after this nobody listens.
  shutdown(listener_.fd(), SHUT_RDWR);
  // Somebody may have removed the file and made another one. As long as the listener is open no other has its number.
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
        const int events = connection.later ? end_of_client : connection.answered ? POLLOUT : POLLIN;
        sockets.push_back({connection.socket.fd(), static_cast<short>(events), 0});
      }
      gpu::wait_for(sockets, wake);
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
      // The system is short of memory or of descriptors. Waiting is better than ending what the trainer does not need.
      if (!std::exchange(warned, true))
        log_warning(fmt::format("the monitor goes on after an error: {}", error.what()));
      connections_.clear();
      pollfd end{ending_.fd(), POLLIN, 0};
      if (poll(&end, 1, 100) > 0) return;
    }
}

// Accepts fewer connections than there may be, so that each of them is looked at before others take its place.
void HttpServer::accept_some() {
  for (size_t i = 0; i < limits_.connections / 2; i++) {
    auto accepted = gpu::accept_from(listener_, Clock::now());
    if (!accepted) return;
    // A client that behaves is served at once, so the oldest connection is one that does not.
    if (connections_.size() >= limits_.connections) connections_.pop_front();
    connections_.push_back({std::move(accepted->first), Clock::now() + limits_.time});
  }
}

// Receives and sends what can be done without waiting. Returns whether the connection goes on.
bool HttpServer::go_on(Connection& connection) try {
  while (!connection.answered) {
    std::array<std::byte, 2048> bytes;
    const auto received = gpu::receive_some(connection.socket, bytes);
    if (!received) return false;
    if (*received == 0) return true;
    std::string& request = connection.request;
    connection.received += *received;
    request.append(reinterpret_cast<const char*>(bytes.data()), *received);
    while (request.starts_with("\r\n")) request.erase(0, 2);  // some clients end what came before so
    const size_t end = request.find(end_of_head);
    const auto head = std::string_view(request).substr(0, end);
    const bool too_long = head.size() > limits_.request_bytes ||
                          (end == std::string::npos && connection.received > limits_.request_bytes);
    if (end == std::string::npos && !too_long && !is_no_head(head)) continue;
    connection.answered = true;
    respond(connection, is_no_head(head) ? refusal(400, "this is no request of HTTP/1.1")
                        : too_long ? refusal(431, fmt::format("a request has at most {} bytes", limits_.request_bytes))
                                   : answer(head));
    if (connection.later) return true;
  }
  if (connection.later) {
    if (Clock::now() < connection.due) {
      // The client sends nothing more. If it has gone its system answers this with a reset, which ends the connection;
      // otherwise it has closed its half alone, and waits. HTTP/1.0 has no such answer.
      const auto line = std::string_view(connection.request).substr(0, connection.request.find("\r\n"));
      if (std::exchange(connection.half_closed, true) || line.ends_with("HTTP/1.0")) return false;
      gpu::send_some(connection.socket, std::as_bytes(std::span(still_working)));
      return true;
    }
    respond(connection, called(std::exchange(connection.later, nullptr)));
  }
  while (connection.sent < connection.response.size()) {
    const size_t sent =
        gpu::send_some(connection.socket, std::as_bytes(std::span(connection.response)).subspan(connection.sent));
    if (sent == 0) return true;
    connection.sent += sent;
  }
  gpu::end_sending(connection.socket);
  return false;
} catch (const Error&) {  // the client has gone
  return false;
}

void HttpServer::respond(Connection& connection, HttpResponse response) const {
  if (response.later) {
    connection.later = std::move(response.later);
    connection.due = Clock::now() + response.wait;
    connection.until = connection.due + limits_.time;
  } else {
    connection.response = bytes_of(response, !connection.request.starts_with("HEAD "));
  }
}

HttpResponse HttpServer::answer(std::string_view head) const {
  const HttpResponse no_request = refusal(400, "this is no request of HTTP/1.1");
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  Fields fields;
  if (first == std::string_view::npos || first == last ||
      !fields.read(head.substr(std::min(line.size() + 2, head.size()))))
    return no_request;
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  std::string_view target = line.substr(first + 1, last - first - 1);
  if (!is_token(method) || target.find(' ') != std::string_view::npos ||
      (version != "HTTP/1.1" && version != "HTTP/1.0"))
    return no_request;
  if (fields.two_hosts || (!fields.host && version == "HTTP/1.1"))
    return refusal(400, "a request of HTTP/1.1 has the header Host once");
  constexpr std::string_view scheme = "http://";
  if (same_letters(target.substr(0, scheme.size()), scheme)) {  // as to a proxy; the host that it names counts
    const size_t path = std::min(target.find_first_of("/?", scheme.size()), target.size());
    fields.host = target.substr(scheme.size(), path - scheme.size());
    target = path == target.size() ? "/" : target.substr(path);
  }
  if (!credentials_.empty() && !equal_in_constant_time(basic_credentials(fields.authorization), credentials_))
    return refusal(401, "the monitor wants the user feedline with its token as the password");
  if (credentials_.empty() && address_.path.empty() && !is_local_name(fields.host.value_or("localhost")))
    return refusal(403, "without a token the monitor is found under an IP address or localhost alone");
  if (method != "GET" && method != "HEAD") return refusal(405, "the monitor answers GET and HEAD");
  if (!target.starts_with('/')) return refusal(400, "the target of a request begins with /");
  const size_t query = target.find('?');
  HttpRequest request{.path = std::string(target.substr(0, query)),
                      .query = query == std::string_view::npos ? "" : std::string(target.substr(query + 1)),
                      .accept = std::string(fields.accept),
                      .other_site = fields.site == "cross-site"};
  return called([&] { return handler_(request); });
}

}  // namespace feedline
