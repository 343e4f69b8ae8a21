// Functions that wait while ranks find one another. They end early if the program or rank 0 has ended the start.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <stop_token>

#include "base/net/sockets.h"

namespace feedline::ranks {

/// The interval at which a waiting rank checks whether its start has been ended.
inline constexpr std::chrono::milliseconds look(50);

/// The events that end a wait early.
struct Interrupts {
  std::stop_token stop;  // the program does not want to start any more (TcpOptions::stop)
  // The connection to rank 0; null if it is not watched. The wait ends when rank 0 has sent something or has ended. So
  // the connection may be watched only while rank 0 has nothing to send except the end of the start.
  const net::Socket* host = nullptr;
};

/// Throws Error stalled if the program has stopped the start, and io_error if rank 0 has ended the start.
void throw_if_interrupted(const Interrupts& by);
/// Wait for sockets, or send or receive all bytes, as the functions of the same names in base/net/sockets.h do. In
/// addition, they throw what throw_if_interrupted() throws, soon after the interrupt.
bool wait_for(std::span<pollfd> sockets, net::Deadline until, const Interrupts& by);
void send_all(const net::Socket& socket, std::span<const std::byte> bytes, net::Deadline until, const Interrupts& by);
void receive_all(const net::Socket& socket, std::span<std::byte> bytes, net::Deadline until, const Interrupts& by);

}  // namespace feedline::ranks
