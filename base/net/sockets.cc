#include "base/net/sockets.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "base/syscall_hooks.h"
#include "feedline/error.h"

namespace feedline::net {
namespace {

using SocketOp = HookedCall<"socket", EMFILE>;
using EventOp = HookedCall<"eventfd for poll", EMFILE>;
using ListenOp = HookedCall<"listen", EADDRINUSE>;  // for bind and listen
using AcceptOp = HookedCall<"accept", ENFILE>;
using ConnectOp = HookedCall<"connect", ECONNREFUSED>;
using SendOp = HookedCall<"send", EPIPE>;
using ReceiveOp = HookedCall<"recv", ECONNRESET>;
using ShortTransferOp = HookedCall<"send or recv short", 1>;  // not an error: only one byte is sent or received
using InterfacesOp = HookedCall<"getifaddrs", ENOMEM>;
using PollOp = HookedCall<"poll", ENOMEM>;

[[noreturn]] void fail(const std::string& what, int error) {
  const char* const to_do = error == EMFILE       ? "; raise the limit of open files (ulimit -n)"
                            : error == EADDRINUSE ? "; another program uses this port; choose a different port"
                                                  : "";
  throw Error(Category::io_error, fmt::format("{}: {}{}", what, std::generic_category().message(error), to_do));
}

template <typename Op>
int result_of(int result) noexcept {
  if (const int error = injected<Op>()) {
    errno = error;
    return -1;
  }
  return result;
}

Socket make_socket(int family) {
  const int fd = injected<SocketOp>() ? (errno = SocketOp::error, -1)
                                      : socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket", errno);
  return Socket(fd);
}

const sockaddr* sockaddr_of(const Address& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }

// Disables Nagle's algorithm, because ranks wait for each small message.
void send_at_once(const Socket& socket) noexcept {
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool to_be_tried_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

void wait_until(const Socket& socket, short what, Deadline until, const char* call) {
  pollfd ready{socket.fd(), what, 0};
  if (!wait_for({&ready, 1}, until)) fail(call, ETIMEDOUT);
}

Address address_at(const sockaddr* found, socklen_t size) {
  Address address;
  std::memcpy(&address.storage, found, size);
  address.size = size;
  return address;
}

// Returns whether this is a link-local IPv6 address. Another machine could not use it without a zone id of its own.
bool is_of_one_link(const Address& address) {
  return address.storage.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr);
}

// Returns the wildcard address, all zeros, which stands for all network interfaces.
Address any_address(int family, uint16_t port) {
  Address address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  address.set_port(port);
  return address;
}

// Converts an IPv4-mapped IPv6 address to IPv4, because other machines may have no IPv6. Returns all other addresses
// unchanged.
Address plain(const Address& address) {
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address.storage);
  if (address.storage.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return address;
  Address four = any_address(AF_INET, address.port());
  std::memcpy(&reinterpret_cast<sockaddr_in&>(four.storage).sin_addr, &six.sin6_addr.s6_addr[12], 4);
  return four;
}

// Returns whether an error of accept(2) concerns only the new connection, and not the listening socket. This is so if
// the connection or its network failed before the connection was accepted.
bool is_of_the_visitor(int error) {
  for (const int one :
       {ECONNABORTED, EPROTO, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH, EOPNOTSUPP, ENETUNREACH, EPERM})
    if (error == one) return true;
  return to_be_tried_again(error);
}

template <typename Call>
Address named_by(Call call, const Socket& socket, const char* name) {
  Address address;
  address.size = sizeof address.storage;
  if (call(socket.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) fail(name, errno);
  return plain(address);
}

}  // namespace

bool Address::is_one() const noexcept {
  return (storage.ss_family == AF_INET && size == sizeof(sockaddr_in)) ||
         (storage.ss_family == AF_INET6 && size == sizeof(sockaddr_in6));
}

bool Address::is_loopback() const noexcept {
  if (storage.ss_family == AF_INET6)
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
  return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 == 127;
}

Address::Network Address::network() const noexcept {
  Network network{};
  if (storage.ss_family == AF_INET6) {
    network[0] = 6;
    std::memcpy(&network[1], &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, 8);
  } else {
    std::memcpy(&network[1], &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, 4);
  }
  return network;
}

bool Address::is_host_of(Address other) const noexcept {
  other.set_port(port());
  return *this == other;
}

bool Address::operator==(const Address& other) const noexcept {
  return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
}

uint16_t Address::port() const noexcept {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void Address::set_port(uint16_t port) noexcept {
  if (storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  else
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
}

std::string Address::host() const {
  std::array<char, NI_MAXHOST> name{};
  return getnameinfo(sockaddr_of(*this), size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) == 0 ? name.data()
                                                                                                          : "?";
}

std::string Address::text() const {
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host(), port()) : fmt::format("{}:{}", host(), port());
}

std::vector<Address> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found))
    throw Error(Category::io_error,
                fmt::format("the host name \"{}\" cannot be resolved: {}", host,
                            error == EAI_SYSTEM ? std::generic_category().message(errno) : gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    addresses.push_back(address_at(one->ai_addr, one->ai_addrlen));
    addresses.back().set_port(port);
  }
  return addresses;
}

std::vector<std::string> addresses_of_this_machine() {
  ifaddrs* found = nullptr;
  const int result = result_of<InterfacesOp>(getifaddrs(&found));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, freeifaddrs);
  if (result != 0) fail("getifaddrs", errno);
  std::vector<std::string> own, others;
  for (const ifaddrs* one = found; one; one = one->ifa_next) {
    const int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
    if ((one->ifa_flags & IFF_UP) == 0 || (family != AF_INET && family != AF_INET6)) continue;
    const Address address = address_at(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (!is_of_one_link(address)) (address.is_loopback() ? own : others).push_back(address.host());
  }
  return others.empty() ? own : others;
}

bool is_ip_address(const std::string& host) {
  in6_addr number;
  return inet_pton(AF_INET, host.c_str(), &number) == 1 || inet_pton(AF_INET6, host.c_str(), &number) == 1;
}

bool is_loopback_name(const std::string& host) {
  if (host == "localhost" || host.ends_with(".localhost") || host == "ip6-localhost") return true;
  return is_ip_address(host) && resolve(host, 0).front().is_loopback();
}

bool is_of_this_machine(const Address& address) {
  const int fd = socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const Socket any_port(fd);
  if (fd < 0 && errno != EAFNOSUPPORT) fail("socket", errno);
  Address here = address;
  here.set_port(0);
  return any_port && bind(fd, sockaddr_of(here), here.size) == 0;
}

Socket make_event() {
  const int fd = injected<EventOp>() ? (errno = EventOp::error, -1) : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0) fail("eventfd", errno);
  return Socket(fd);
}

Socket listen_at(const Address& address) {
  Socket listener = make_socket(address.storage.ss_family);
  const int on = 1, off = 0;
  // Lets a restarted program use a port at which connections of its predecessor are still in the state TIME_WAIT.
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) setsockopt(listener.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (result_of<ListenOp>(bind(listener.fd(), sockaddr_of(address), address.size)) != 0 ||
      listen(listener.fd(), SOMAXCONN) != 0)
    fail(fmt::format("listening at {}", address.text()), errno);
  return listener;
}

Socket listen_everywhere(uint16_t port) {
  // Finds out whether IPv6 works, by binding a socket to any free port. IPv6 may be missing, or a sandbox may forbid
  // it.
  const Address any = any_address(AF_INET6, 0);
  const Socket probe(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool has_ipv6 = probe && bind(probe.fd(), sockaddr_of(any), any.size) == 0;
  return listen_at(any_address(has_ipv6 ? AF_INET6 : AF_INET, port));
}

Address address_of(const Socket& socket) { return named_by(getsockname, socket, "getsockname"); }
Address peer_of(const Socket& socket) { return named_by(getpeername, socket, "getpeername"); }

std::optional<std::pair<Socket, Address>> accept_from(const Socket& listener, Deadline until) {
  for (;;) {
    pollfd ready{listener.fd(), POLLIN, 0};
    if (!wait_for({&ready, 1}, until)) return std::nullopt;
    if (const int error = injected<AcceptOp>()) fail("accept", error);
    Address from;
    from.size = sizeof from.storage;
    Socket socket(
        accept4(listener.fd(), reinterpret_cast<sockaddr*>(&from.storage), &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket && !is_of_the_visitor(errno)) fail("accept", errno);
    if (!socket) continue;
    send_at_once(socket);
    return std::pair(std::move(socket), plain(from));
  }
}

Socket connect_to(const Address& address, Deadline until) {
  Socket socket = make_socket(address.storage.ss_family);
  const std::string call = fmt::format("connecting to {}", address.text());
  int error = result_of<ConnectOp>(connect(socket.fd(), sockaddr_of(address), address.size)) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    wait_until(socket, POLLOUT, until, call.c_str());
    socklen_t size = sizeof error;
    if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  // The socket may have connected to itself (TCP's simultaneous open): no process listens at this port of this machine,
  // but the system has chosen the same port for this end.
  if (error == 0 && address_of(socket) == peer_of(socket)) error = ECONNREFUSED;
  if (error != 0) fail(call, error);
  send_at_once(socket);
  return socket;
}

size_t send_some(const Socket& socket, std::span<const std::byte> bytes) {
  if (const int error = injected<SendOp>()) fail("send", error);
  const size_t most = injected<ShortTransferOp>() ? 1 : bytes.size();
  const ssize_t sent = send(socket.fd(), bytes.data(), most, MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<size_t>(sent);
  if (!to_be_tried_again(errno)) fail("send", errno);
  return 0;
}

std::optional<size_t> receive_some(const Socket& socket, std::span<std::byte> bytes) {
  if (const int error = injected<ReceiveOp>()) fail("recv", error);
  const size_t most = injected<ShortTransferOp>() ? 1 : bytes.size();
  const ssize_t received = recv(socket.fd(), bytes.data(), most, 0);
  if (received > 0) return static_cast<size_t>(received);
  if (received == 0) return std::nullopt;
  if (!to_be_tried_again(errno)) fail("recv", errno);
  return 0;
}

bool has_more(const Socket& socket) {
  std::byte next;
  const ssize_t received = recv(socket.fd(), &next, 1, MSG_PEEK);
  if (received < 0 && !to_be_tried_again(errno)) fail("recv", errno);
  return received != 0;
}

void send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline until) {
  while (!bytes.empty()) {
    const size_t sent = send_some(socket, bytes);
    bytes = bytes.subspan(sent);
    if (sent == 0) wait_until(socket, POLLOUT, until, "send");
  }
}

void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline until) {
  while (!bytes.empty()) {
    const auto received = receive_some(socket, bytes);
    if (!received) fail("recv", ECONNRESET);
    bytes = bytes.subspan(*received);
    if (*received == 0) wait_until(socket, POLLIN, until, "recv");
  }
}

void watch_machine(const Socket& socket) noexcept {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket.fd(), level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);  // seconds
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

void end_sending(const Socket& socket) noexcept { shutdown(socket.fd(), SHUT_WR); }

bool wait_for(std::span<pollfd> sockets, Deadline until) {
  using std::chrono::milliseconds;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    const auto most = std::clamp<milliseconds>(left, milliseconds(0), std::chrono::hours(1));
    if (const int error = injected<PollOp>()) fail("poll", error);
    const int ready = poll(sockets.data(), sockets.size(), static_cast<int>(most.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("poll", errno);
    if (ready == 0 && left <= most) return false;
  }
}

}  // namespace feedline::net
