#include "ranks/tcp/stoppable.h"

#include <algorithm>

#include "feedline/error.h"

namespace feedline::ranks {

using Clock = std::chrono::steady_clock;

void throw_if_interrupted(const Interrupts& by) {
  if (by.stop.stop_requested()) throw Error(Category::stalled, "the wait for other ranks to start was stopped");
  pollfd word = {by.host ? by.host->fd() : -1, POLLIN, 0};
  if (by.host && net::wait_for({&word, 1}, Clock::now()))
    throw Error(Category::io_error, "rank 0 has ended the start of the ranks");
}

bool wait_for(std::span<pollfd> sockets, net::Deadline until, const Interrupts& by) {
  const bool looks = by.stop.stop_possible() || by.host;
  for (;;) {
    throw_if_interrupted(by);
    if (net::wait_for(sockets, looks ? std::min(until, Clock::now() + look) : until)) return true;
    if (Clock::now() >= until) return false;
  }
}

void send_all(const net::Socket& socket, std::span<const std::byte> bytes, net::Deadline until, const Interrupts& by) {
  std::vector<pollfd> ready = {{socket.fd(), POLLOUT, 0}};
  while (!bytes.empty() && wait_for(ready, until, by)) bytes = bytes.subspan(net::send_some(socket, bytes));
  net::send_all(socket, bytes, until);  // throws if anything is left
}

void receive_all(const net::Socket& socket, std::span<std::byte> bytes, net::Deadline until, const Interrupts& by) {
  std::vector<pollfd> ready = {{socket.fd(), POLLIN, 0}};
  while (!bytes.empty() && wait_for(ready, until, by)) {
    const auto received = net::receive_some(socket, bytes);
    if (!received) break;
    bytes = bytes.subspan(*received);
  }
  net::receive_all(socket, bytes, until);  // throws if anything is missing
}

}  // namespace feedline::ranks
