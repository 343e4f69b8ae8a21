// Runs a program as several processes, one for each rank.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

#include "support/catch.h"

namespace feedline::test {

struct Launched {
  int ok = 0;  // the number of processes that printed a line ending in " ok"
  std::string text;
};

inline Launched launch(const std::string& command) {
  FILE* out = popen(("( " + command + " ) 2>&1").c_str(), "r");
  REQUIRE(out);
  Launched launched;
  char line[4096];
  while (std::fgets(line, sizeof line, out)) {
    launched.text += line;
    launched.ok += std::string(line).find(" ok\n") != std::string::npos;
  }
  pclose(out);
  return launched;
}

/// Runs the program under mpirun. The options allow more ranks than CPUs, keep the traffic on this machine, and let
/// root start it.
inline Launched mpirun(int ranks, const std::string& options, const std::string& program) {
  return launch("mpirun --oversubscribe --allow-run-as-root --mca btl self,vader,tcp --mca btl_tcp_if_include lo -n " +
                std::to_string(ranks) + " " + options + " " + program);
}

/// Returns a TCP port of this machine that is not in use, another one each time. The port is below 32768, where the
/// kernel's ports for outgoing connections begin, because a connection made meanwhile might take it otherwise.
inline int free_port() {
  constexpr int first = 16384, count = 16384;
  static std::atomic<int> tried = getpid() * 251 % count;
  for (int i = 0; i < count; i++) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(first + tried++ % count));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    REQUIRE(fd >= 0);
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(fd);
    if (free) return ntohs(address.sin_port);
  }
  FAIL("no port is free");
  return -1;
}

/// Runs the program as torchrun does: the environment tells the ranks where to meet.
inline Launched torchrun(int ranks, const std::string& program) {
  return launch(
      "for rank in $(seq 0 " + std::to_string(ranks - 1) + "); do RANK=$rank WORLD_SIZE=" + std::to_string(ranks) +
      " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port() - 1) + " " + program + " & done; wait");
}

}  // namespace feedline::test
