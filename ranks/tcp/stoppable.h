// Waits of ranks that find one another, which end early when the start is stopped (TcpOptions::stop).
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <stop_token>

#include "ranks/tcp/sockets.h"

namespace feedline::gpu {

/// How often a waiting rank looks whether its start has been stopped.
inline constexpr std::chrono::milliseconds look(50);

/// Throws Error stalled if the start was stopped.
void throw_if_stopped(const std::stop_token& stop);
/// Do what the functions of sockets.h do, and throw Error stalled soon after the start was stopped.
bool wait_for(std::span<pollfd> sockets, Deadline until, const std::stop_token& stop);
void receive_all(const Socket& socket, std::span<std::byte> bytes, Deadline until, const std::stop_token& stop);

}  // namespace feedline::gpu
