// TCP connections. No call takes longer than its deadline. The functions throw Error io_error; messages name the call
// that failed: "recv: Connection reset by peer".
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace feedline::gpu {

using Deadline = std::chrono::steady_clock::time_point;

/// Owns the descriptor of a socket, which does not block and is not inherited by programs that this process starts.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// IPv4 or IPv6, with a port. Plain data.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  bool is_loopback() const noexcept;
  /// Returns whether `other` is the same host, at any port.
  bool is_host_of(Address other) const noexcept;
  uint16_t port() const noexcept;
  void set_port(uint16_t port) noexcept;
  /// Returns the number of the host: "10.0.0.1".
  std::string host() const;
  /// Returns the number of the host and the port: "10.0.0.1:29501", "[::1]:29501".
  std::string text() const;
  bool operator==(const Address& other) const noexcept;
};
/// Returns the addresses that a name stands for. Throws Error if there are none. It asks the system's resolver, which
/// has time limits of its own.
std::vector<Address> resolve(const std::string& host, uint16_t port);
/// Returns the IP addresses, as text, under which other machines reach this one. If it has no network, returns those
/// under which it reaches itself.
std::vector<std::string> addresses_of_this_machine();

/// Listens in every network of this machine, IPv6 and IPv4. Port 0: the system chooses a free port.
Socket listen_everywhere(uint16_t port);
/// Return the address of this end and of the other end. An IPv4 address is given as IPv4, even if the socket is IPv6.
Address address_of(const Socket& socket);
Address peer_of(const Socket& socket);
/// Accepts a connection. Returns nothing if none has come before the deadline.
std::optional<std::pair<Socket, Address>> accept_from(const Socket& listener, Deadline until);
Socket connect_to(const Address& address, Deadline until);

/// Send or receive what is possible without waiting, and return how many bytes that was, perhaps 0. receive_some()
/// returns nothing if the other end has closed the connection.
size_t send_some(const Socket& socket, std::span<const std::byte> bytes);
std::optional<size_t> receive_some(const Socket& socket, std::span<std::byte> bytes);
/// Send or receive all bytes. Throw Error if that is not done before the deadline.
void send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline until);
void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline until);
/// Tells the other end that nothing more will be sent.
void end_sending(const Socket& socket) noexcept;

/// Returns when one of the sockets is ready, or at the deadline. Returns whether one is ready.
bool wait_for(std::span<pollfd> sockets, Deadline until);

}  // namespace feedline::gpu
