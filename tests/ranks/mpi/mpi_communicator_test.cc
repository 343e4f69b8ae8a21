// Ranks that are processes, under mpirun.
#include "support/catch.h"
#include "support/launch.h"

using namespace feedline::test;

TEST_CASE("processes: a communicator does what all do") {
  const Launched outcome = mpirun(4, "", MPI_RANKS " conformance");
  INFO(outcome.text);
  CHECK(outcome.ok == 4);
}

TEST_CASE("processes: what is wrong on one rank ends all of them, and says where") {
  const std::string what = GENERATE("differently", "parts", "abort", "leave");
  const Launched outcome = mpirun(4, "", MPI_RANKS " " + what);
  INFO(what << "\n" << outcome.text);
  CHECK(outcome.ok == 4);
}

TEST_CASE("processes: a rank that pauses between two calls is no failure") {
  const Launched outcome = mpirun(4, "", MPI_RANKS " pause");
  INFO(outcome.text);
  CHECK(outcome.ok == 4);
}

TEST_CASE("processes: a rank that is stopped or killed ends the others, inside the timeout") {
  const std::string what = GENERATE("stop", "kill");
  const Launched outcome = mpirun(4, "--enable-recovery", MPI_RANKS " " + what);
  INFO(what << "\n" << outcome.text);
  CHECK(outcome.ok == (what == "stop" ? 4 : 3));
}

TEST_CASE("processes: what a rank says when it leaves is there until it is heard") {
  const Launched outcome =
      mpirun(2, "--mca btl_vader_eager_limit 256 --mca btl_tcp_eager_limit 256", MPI_RANKS " leave_unheard");
  INFO(outcome.text);
  CHECK(outcome.ok == 2);
}
