// Options for ranks on this machine that are connected by TCP.
#pragma once

#include <cstdint>

#include "feedline/tcp_communicator.h"

namespace feedline::test {

inline TcpOptions tcp_options(int rank, int ranks, int port) {
  return {.address = "127.0.0.1",
          .port = static_cast<uint16_t>(port),
          .rank = rank,
          .world_size = ranks,
          .start_timeout = std::chrono::seconds(60)};
}

}  // namespace feedline::test
