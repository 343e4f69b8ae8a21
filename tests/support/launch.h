// Runs a program as several processes, one for each rank.
#pragma once

#include <cstdio>
#include <string>

#include "support/catch.h"
#include "support/free_port.h"

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

/// Runs the program as torchrun does: the environment tells the ranks where to meet.
inline Launched torchrun(int ranks, const std::string& program) {
  return launch(
      "for rank in $(seq 0 " + std::to_string(ranks - 1) + "); do RANK=$rank WORLD_SIZE=" + std::to_string(ranks) +
      " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port() - 1) + " " + program + " & done; wait");
}

}  // namespace feedline::test
