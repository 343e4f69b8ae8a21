#include "ranks/tcp/meeting_place.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace feedline::ranks {
namespace {

std::vector<net::Socket> listen_everywhere_at(uint16_t port) {
  std::vector<net::Socket> listeners;
  listeners.push_back(net::listen_everywhere(port));
  return listeners;
}

// Listens at `addresses`, which are addresses of this machine, all with the same port. If the port is 0, uses one that
// is free at all of them.
std::vector<net::Socket> listen_at_all(const std::vector<net::Address>& addresses) {
  for (int tries = 10;; tries--) try {
      std::vector<net::Socket> listeners;
      for (net::Address address : addresses) {
        if (!listeners.empty()) address.set_port(net::address_of(listeners.front()).port());
        listeners.push_back(net::listen_at(address));
      }
      return listeners;
    } catch (const Error&) {
      if (tries == 0 || addresses.front().port() != 0) throw;
    }
}

std::vector<net::Address> addresses_of(const std::string& name, uint16_t port) {
  try {
    return net::resolve(name, port);
  } catch (const Error&) {  // other machines may know the name, or this one may know it later
    return {};
  }
}

// Adds to `addresses` those of `found` that this machine has and that are not in `addresses` yet.
void add_own(const std::vector<net::Address>& found, std::vector<net::Address>& addresses) {
  for (const net::Address& address : found)
    if (net::is_of_this_machine(address) && std::ranges::find(addresses, address) == addresses.end())
      addresses.push_back(address);
}

}  // namespace

std::string place_of(const TcpOptions& options) {
  const bool is_ipv6 = options.address.find(':') != std::string::npos && net::is_ip_address(options.address);
  return is_ipv6 ? fmt::format("[{}]:{}", options.address, options.port)
                 : fmt::format("{}:{}", options.address, options.port);
}

Error needs_token(const TcpOptions& options) {
  return Error(
      Category::bad_pipeline,
      fmt::format(
          "the ranks meet at {}, which other machines can reach, but the ranks have no secret by which to recognise "
          "one another; set FEEDLINE_MEET_TOKEN to the same random text for all ranks (openssl rand -hex 16), or, in a "
          "network that you trust, let any process join (--meet-open, TcpOptions::open, feedline.Tcp(open=True))",
          place_of(options)));
}

bool stays_on_this_machine(const TcpOptions& options) { return options.token.empty() && !options.open; }

std::vector<net::Socket> listen_for(const TcpOptions& options) {
  std::vector<net::Address> found, addresses;
  std::string unknown;  // why the name is unknown
  if (!options.address.empty()) try {
      found = net::resolve(options.address, options.port);
    } catch (const Error& error) {  // other machines may know the name, or this one may know it later
      unknown = error.message();
    }
  if (!unknown.empty() && stays_on_this_machine(options)) throw Error(Category::io_error, unknown);
  if (!unknown.empty())
    log_warning(fmt::format("rank 0 listens at all addresses of this machine, because {}", unknown));
  if (stays_on_this_machine(options)) {
    if (found.empty() || !std::ranges::all_of(found, &net::Address::is_loopback)) throw needs_token(options);
    add_own(found, addresses);
    if (addresses.empty()) addresses = found;  // then listen_at_all() throws, and says why
  } else if (net::is_ip_address(options.address) || net::is_loopback_name(options.address)) {
    add_own(found, addresses);
    if (addresses.empty())
      log_warning(
          fmt::format("rank 0 listens at all addresses of this machine, because {} is not an address of this machine; "
                      "ignore this if it is the address of a tunnel or a forwarded port",
                      options.address));
  }
  // If options.address is a name, and not a loopback name, other machines may resolve it to a different address of this
  // machine. So rank 0 then listens at all addresses.
  return addresses.empty() ? listen_everywhere_at(options.port) : listen_at_all(addresses);
}

std::vector<net::Socket> listen_beside(const net::Socket& host, const TcpOptions& options,
                                       const std::vector<std::string>& names) {
  std::vector<net::Address> addresses;
  if (const net::Address here = net::address_of(host); !here.is_loopback() && !here.is_host_of(net::peer_of(host))) {
    addresses = {here};
  } else if (stays_on_this_machine(options) || std::ranges::all_of(names, net::is_loopback_name)) {
    add_own({net::peer_of(host)}, addresses);
    for (net::Address& address : addresses) address.set_port(0);
    for (const char* const name : {"127.0.0.1", "::1", "localhost"}) add_own(addresses_of(name, 0), addresses);
  }
  for (net::Address& address : addresses) address.set_port(0);
  return addresses.empty() ? listen_everywhere_at(0) : listen_at_all(addresses);
}

}  // namespace feedline::ranks
