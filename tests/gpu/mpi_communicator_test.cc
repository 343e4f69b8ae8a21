// Ranks that are processes, under mpirun.
#include <cstdio>
#include <string>

#include "support/catch.h"
#include "support/skip.h"

namespace {

struct Outcome {
  int ok = 0;
  std::string text;
};

Outcome mpirun(const std::string& options, const std::string& what) {
  // More ranks than CPUs, on this machine alone, also for root.
  const std::string command =
      "mpirun --oversubscribe --allow-run-as-root --mca btl self,vader,tcp --mca btl_tcp_if_include lo "
      "-n 4 " +
      options + " " MPI_RANKS " " + what + " 2>&1";
  FILE* out = popen(command.c_str(), "r");
  REQUIRE(out);
  Outcome outcome;
  char line[4096];
  while (std::fgets(line, sizeof line, out)) {
    outcome.text += line;
    outcome.ok += std::string(line).find(" ok\n") != std::string::npos;
  }
  pclose(out);
  return outcome;
}

}  // namespace

TEST_CASE("processes: a communicator does what all do") {
  const Outcome outcome = mpirun("", "conformance");
  INFO(outcome.text);
  CHECK(outcome.ok == 4);
}

TEST_CASE("processes: what is wrong on one rank ends all of them, and says where") {
  const std::string what = GENERATE("differently", "parts", "abort", "leave");
  const Outcome outcome = mpirun("", what);
  INFO(what << "\n" << outcome.text);
  CHECK(outcome.ok == 4);
}

TEST_CASE("processes: a rank that pauses between two calls is no failure") {
  const Outcome outcome = mpirun("", "pause");
  INFO(outcome.text);
  CHECK(outcome.ok == 4);
}

TEST_CASE("processes: a rank that is stopped or killed ends the others, inside the timeout") {
  const std::string what = GENERATE("stop", "kill");
  const Outcome outcome = mpirun("--enable-recovery", what);
  INFO(what << "\n" << outcome.text);
  CHECK(outcome.ok == (what == "stop" ? 4 : 3));
}
