// Runs a program as several MPI processes.
#pragma once

#include <cstdio>
#include <string>

#include "support/catch.h"

namespace feedline::test {

struct MpiOutcome {
  int ok = 0;  // processes that said "... ok"
  std::string text;
};

/// More ranks than CPUs, on this machine alone, also for root.
inline MpiOutcome mpirun(int ranks, const std::string& options, const std::string& program) {
  const std::string command =
      "mpirun --oversubscribe --allow-run-as-root --mca btl self,vader,tcp --mca btl_tcp_if_include lo -n " +
      std::to_string(ranks) + " " + options + " " + program + " 2>&1";
  FILE* out = popen(command.c_str(), "r");
  REQUIRE(out);
  MpiOutcome outcome;
  char line[4096];
  while (std::fgets(line, sizeof line, out)) {
    outcome.text += line;
    outcome.ok += std::string(line).find(" ok\n") != std::string::npos;
  }
  pclose(out);
  return outcome;
}

}  // namespace feedline::test
