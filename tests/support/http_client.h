// A client for tests of the monitor.
#pragma once

#include <array>
#include <chrono>
#include <string>

#include "trainer_bridge/monitor/http_server.h"

namespace feedline::test {

inline net::Deadline in_a_minute() { return std::chrono::steady_clock::now() + std::chrono::minutes(1); }

/// Connects to the IP address of a server.
inline net::Socket connect_to(const HttpAddress& address) { return net::connect_to(address.ip, in_a_minute()); }

inline void send(const net::Socket& socket, std::string_view text) {
  net::send_all(socket, std::as_bytes(std::span(text)), in_a_minute());
}

/// Returns what arrives until the server closes the connection.
inline std::string receive(const net::Socket& socket) {
  std::string text;
  std::array<std::byte, 4096> bytes;
  for (;;) {
    pollfd ready{socket.fd(), POLLIN, 0};
    if (!net::wait_for({&ready, 1}, in_a_minute())) throw Error(Category::stalled, "the server is silent");
    try {
      const auto received = net::receive_some(socket, bytes);
      if (!received) return text;
      text.append(reinterpret_cast<const char*>(bytes.data()), *received);
    } catch (const Error&) {  // the server has closed it while bytes of ours were under way
      return text;
    }
  }
}

/// Returns the response to a request, whose lines end with a bare "\n" here.
inline std::string ask(const HttpAddress& address, std::string_view lines) {
  std::string request;
  for (const char c : lines) request += c == '\n' ? "\r\n" : std::string(1, c);
  const net::Socket socket = connect_to(address);
  send(socket, request);
  return receive(socket);
}

inline std::string get(const HttpAddress& address, const std::string& path, const std::string& headers = "") {
  return ask(address, "GET " + path + " HTTP/1.1\nHost: localhost\n" + headers + "\n");
}

/// Returns what follows the headers of a response.
inline std::string body(const std::string& response) {
  const size_t end = response.find("\r\n\r\n");
  return end == std::string::npos ? "" : response.substr(end + 4);
}

}  // namespace feedline::test
