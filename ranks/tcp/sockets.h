// TCP connections, of which no call takes longer than it is given. Errors name the call: "recv: Connection reset".
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

/// Owns a descriptor; does not block, and is not inherited.
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
  bool is_host_of(Address other) const noexcept;
  uint16_t port() const noexcept;
  void set_port(uint16_t port) noexcept;
  std::string host() const;
  std::string text() const;
  bool operator==(const Address& other) const noexcept;
};
/// What a name stands for. Throws Error where it stands for nothing. Asks the system's resolver, which has its own
/// limits of time.
std::vector<Address> resolve(const std::string& host, uint16_t port);
/// Numbers, under which others reach it; where it has no network, under which it reaches itself.
std::vector<std::string> addresses_of_this_machine();

/// In every network of this machine, IPv6 and IPv4; port 0: one that the system chooses. Throws Error, as all of these.
Socket listen_everywhere(uint16_t port);
/// IPv4 as IPv4, whatever the socket is.
Address address_of(const Socket& socket);
Address peer_of(const Socket& socket);
/// None: nobody came.
std::optional<std::pair<Socket, Address>> accept_from(const Socket& listener, Deadline until);
Socket connect_to(const Address& address, Deadline until);

/// What can be moved at once, perhaps nothing. receive_some: none where the other end has closed.
size_t send_some(const Socket& socket, std::span<const std::byte> bytes);
std::optional<size_t> receive_some(const Socket& socket, std::span<std::byte> bytes);
void send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline until);
void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline until);
/// Says to the other end that nothing more will come.
void end_sending(const Socket& socket) noexcept;

/// Returns when one of them is ready, or then. Whether one is.
bool wait_for(std::span<pollfd> sockets, Deadline until);

}  // namespace feedline::gpu
