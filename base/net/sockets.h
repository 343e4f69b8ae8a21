// TCP connections. A function with a deadline returns or throws by then. The functions throw Error io_error;
// the messages name the system call that failed: "recv: Connection reset by peer".
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/descriptor.h"

namespace feedline::net {

using Deadline = std::chrono::steady_clock::time_point;

/// Owns a socket, which is non-blocking and close-on-exec.
class Socket : public Descriptor {
  using Descriptor::Descriptor;
};

/// An IPv4 or IPv6 address with a port. Ranks send it as raw bytes.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  uint32_t zero = 0;  // in place of padding, whose bytes would be undefined

  /// Returns whether `storage` has the family and `size` the value of an IPv4 or IPv6 address. For checking an Address
  /// that a different rank has sent.
  bool is_one() const noexcept;
  bool is_loopback() const noexcept;
  /// The part of an address that all addresses of one host share: the whole of an IPv4 address, or the first 64 bits of
  /// an IPv6 address.
  using Network = std::array<uint8_t, 9>;
  Network network() const noexcept;
  /// Returns whether this address and `other` are the same apart from their ports.
  bool is_host_of(Address other) const noexcept;
  uint16_t port() const noexcept;
  void set_port(uint16_t port) noexcept;
  /// Returns the IP address: "10.0.0.1".
  std::string host() const;
  /// Returns the IP address and the port: "10.0.0.1:29501", "[::1]:29501".
  std::string text() const;
  bool operator==(const Address& other) const noexcept;
};
/// Returns the addresses of a host name. Throws Error if there are none. Has no deadline: the system's resolver has
/// time limits of its own.
std::vector<Address> resolve(const std::string& host, uint16_t port);
/// Returns the IP addresses, as text, of this machine's network interfaces. Returns loopback addresses only if the
/// machine has no other addresses.
std::vector<std::string> addresses_of_this_machine();

/// Returns whether `host` is the text of an IP address, and not a name.
bool is_ip_address(const std::string& host);
/// Returns whether `host` means loopback on every machine: by its name, such as "localhost", or as an IP address. A
/// name that only this machine resolves to a loopback address, such as its own host name, does not count.
bool is_loopback_name(const std::string& host);
/// Returns whether the address belongs to this machine. Throws Error if the system refuses the socket that is needed to
/// find out.
bool is_of_this_machine(const Address& address);

/// Returns a non-blocking eventfd. (It is no socket, but is owned and polled like one.)
Socket make_event();

/// Returns a socket that listens at one address. If the port is 0, the system chooses a free port.
Socket listen_at(const Address& address);
/// Returns a socket that listens on all network interfaces, with IPv4 and, if this machine has it, IPv6. If `port` is
/// 0, the system chooses a free port.
Socket listen_everywhere(uint16_t port);
/// Return the local and the remote address of a connection. An IPv4-mapped IPv6 address is returned as IPv4.
Address address_of(const Socket& socket);
Address peer_of(const Socket& socket);
/// Accepts a connection, and returns it with the address of the other end. Returns nullopt if no connection arrives
/// before the deadline.
std::optional<std::pair<Socket, Address>> accept_from(const Socket& listener, Deadline until);
Socket connect_to(const Address& address, Deadline until);

/// Send or receive as many bytes as possible without waiting, and return their number, which may be 0. receive_some()
/// returns nullopt if the other end has closed the connection.
size_t send_some(const Socket& socket, std::span<const std::byte> bytes);
std::optional<size_t> receive_some(const Socket& socket, std::span<std::byte> bytes);
/// Returns false if the other end has closed the connection and nothing is left to receive. Otherwise returns true,
/// even if nothing has arrived yet.
bool has_more(const Socket& socket);
/// Send or receive all bytes. Throw Error if the deadline comes first.
void send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline until);
void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline until);
/// Asks the system to end the connection if it is idle and the machine at the other end has not answered for two
/// minutes. (While bytes that were sent are not acknowledged, the system's limit for sending again counts instead:
/// about 15 minutes.)
void watch_machine(const Socket& socket) noexcept;
/// Shuts down the sending side, so that the other end receives an end of file.
void end_sending(const Socket& socket) noexcept;

/// Waits with poll(2) until a socket is ready or the deadline is reached. Returns whether a socket is ready.
bool wait_for(std::span<pollfd> sockets, Deadline until);

}  // namespace feedline::net
