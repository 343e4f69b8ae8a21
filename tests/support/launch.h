// Runs a program as several processes, each a rank.
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
  int ok = 0;  // processes that said "... ok"
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

/// By MPI; more ranks than CPUs, on this machine alone, also for root.
inline Launched mpirun(int ranks, const std::string& options, const std::string& program) {
  return launch("mpirun --oversubscribe --allow-run-as-root --mca btl self,vader,tcp --mca btl_tcp_if_include lo -n " +
                std::to_string(ranks) + " " + options + " " + program);
}

/// A port of this machine that nobody uses: another one each time, and below those that connections are given (from
/// 32768 on), or one made meanwhile might take it.
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

/// As torchrun does: ranks are told by their environment where to meet.
inline Launched torchrun(int ranks, const std::string& program) {
  return launch(
      "for rank in $(seq 0 " + std::to_string(ranks - 1) + "); do RANK=$rank WORLD_SIZE=" + std::to_string(ranks) +
      " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port() - 1) + " " + program + " & done; wait");
}

}  // namespace feedline::test
