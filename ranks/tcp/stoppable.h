// Waits of ranks that find one another, which end early if the start has been ended from elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <stop_token>

#include "base/net/sockets.h"

namespace feedline::ranks {

/// How often a waiting rank looks whether its start has been ended.
inline constexpr std::chrono::milliseconds look(50);

/// What ends a wait early.
struct Interrupts {
  std::stop_token stop;  // the program does not want to start any more (TcpOptions::stop)
  const net::Socket* host =
      nullptr;  // rank 0 has said something, or has ended, at a time when it can only end the start
};

/// Throws Error stalled if the start was stopped, and io_error if rank 0 has ended it.
void throw_if_interrupted(const Interrupts& by);
/// Do what the functions of sockets.h do, and throw as throw_if_interrupted() soon after the interrupt.
bool wait_for(std::span<pollfd> sockets, net::Deadline until, const Interrupts& by);
void send_all(const net::Socket& socket, std::span<const std::byte> bytes, net::Deadline until, const Interrupts& by);
void receive_all(const net::Socket& socket, std::span<std::byte> bytes, net::Deadline until, const Interrupts& by);

}  // namespace feedline::ranks
