#include "ranks/tcp/stoppable.h"

#include <algorithm>

#include "feedline/error.h"

namespace feedline::gpu {

using Clock = std::chrono::steady_clock;

void throw_if_interrupted(const Interrupts& by) {
  if (by.stop.stop_requested()) throw Error(Category::stalled, "the wait for other ranks to start was stopped");
  pollfd word = {by.host ? by.host->fd() : -1, POLLIN, 0};
  if (by.host && wait_for({&word, 1}, Clock::now())) throw Error(Category::io_error, "rank 0 has ended the start");
}

bool wait_for(std::span<pollfd> sockets, Deadline until, const Interrupts& by) {
  const bool looks = by.stop.stop_possible() || by.host;
  for (;;) {
    throw_if_interrupted(by);
    if (wait_for(sockets, looks ? std::min(until, Clock::now() + look) : until)) return true;
    if (Clock::now() >= until) return false;
  }
}

void send_all(const Socket& socket, std::span<const std::byte> bytes, Deadline until, const Interrupts& by) {
  std::vector<pollfd> ready = {{socket.fd(), POLLOUT, 0}};
  while (!bytes.empty() && wait_for(ready, until, by)) bytes = bytes.subspan(send_some(socket, bytes));
  send_all(socket, bytes, until);  // throws if anything is left
}

void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline until, const Interrupts& by) {
  std::vector<pollfd> ready = {{socket.fd(), POLLIN, 0}};
  while (!bytes.empty() && wait_for(ready, until, by)) {
    const auto received = receive_some(socket, bytes);
    if (!received) break;
    bytes = bytes.subspan(*received);
  }
  receive_all(socket, bytes, until);  // throws if anything is missing
}

}  // namespace feedline::gpu
