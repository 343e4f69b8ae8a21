#include "ranks/tcp/stoppable.h"

#include <algorithm>

#include "feedline/error.h"

namespace feedline::gpu {

using Clock = std::chrono::steady_clock;

void throw_if_stopped(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Error(Category::stalled, "the wait for other ranks to start was stopped");
}

bool wait_for(std::span<pollfd> sockets, Deadline until, const std::stop_token& stop) {
  for (;;) {
    throw_if_stopped(stop);
    if (wait_for(sockets, stop.stop_possible() ? std::min(until, Clock::now() + look) : until)) return true;
    if (Clock::now() >= until) return false;
  }
}

void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline until, const std::stop_token& stop) {
  std::vector<pollfd> ready = {{socket.fd(), POLLIN, 0}};
  while (!bytes.empty() && wait_for(ready, until, stop)) {
    const auto received = receive_some(socket, bytes);
    if (!received) break;
    bytes = bytes.subspan(*received);
  }
  receive_all(socket, bytes, until);  // throws if anything is missing
}

}  // namespace feedline::gpu
