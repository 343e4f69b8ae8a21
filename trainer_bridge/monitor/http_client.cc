#include "trainer_bridge/monitor/http_client.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "feedline/error.h"
#include "trainer_bridge/monitor/http_message.h"
#include "trainer_bridge/monitor/monitor_token.h"

namespace feedline {
namespace {

constexpr size_t most_bytes = 8 << 20;  // of an answer

std::string receive_until_closed(const net::Socket& socket, net::Deadline until) {
  std::string text;
  std::array<std::byte, 16384> bytes;
  for (;;) {
    pollfd ready{socket.fd(), POLLIN, 0};
    if (!net::wait_for({&ready, 1}, until)) throw Error(Category::io_error, "the monitor did not answer in time");
    const std::optional<size_t> received = net::receive_some(socket, bytes);
    if (!received) return text;
    text.append(reinterpret_cast<const char*>(bytes.data()), *received);
    if (text.size() > most_bytes)
      throw Error(Category::io_error, "the answer is longer than any answer of a monitor; check the address");
  }
}

// Returns the body of the answer to GET `path`. `authorization` is the value of the header Authorization, which is left
// out if the value is empty.
std::string get(const HttpAddress& address, std::string_view path, const std::string& authorization,
                net::Deadline until) {
  const net::Socket socket = connect_to(address, until);
  const std::string request =
      fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n", path,
                  authorization.empty() ? "" : fmt::format("Authorization: {}\r\n", authorization));
  net::send_all(socket, std::as_bytes(std::span(request)), until);
  return body_of_answer(receive_until_closed(socket, until));
}

}  // namespace

std::string http_get(const HttpAddress& address, std::string_view path, std::string_view token, net::Deadline until) {
  if (token.empty()) return get(address, path, {}, until);
  std::string nonce;
  try {
    nonce = get(address, "/nonce", {}, until);
  } catch (const Error& error) {
    // A monitor without a token does not know /nonce, and answers any client.
    if (!error.message().starts_with("404")) throw;
    return get(address, path, {}, until);
  }
  constexpr size_t longest = 200;
  if (nonce.size() > longest || !is_http_token(nonce))
    throw Error(Category::io_error,
                "the program at this address is not a monitor of this version of feedline; check the address, and run "
                "the same version everywhere");
  return get(address, path, token_proof(token, nonce, path), until);
}

}  // namespace feedline
