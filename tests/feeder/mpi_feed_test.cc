// Feeds in MPI processes, under mpirun.
#include "data.h"
#include "support/catch.h"
#include "support/launch.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("processes: each is given what it would be given if it read its own") {
  const Data data({90, 0, 1, 117});
  for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"})
    for (const int ranks : {1, 2, 4, 8}) {
      const Launched outcome = mpirun(ranks, "", MPI_FEED " " + mode + " " + data.dir().path());
      INFO(mode << " " << ranks << "\n" << outcome.text);
      CHECK(outcome.ok == ranks);
    }
}

TEST_CASE("processes: trainers beside their feeds, all in step, come to what threads come to") {
  const Data data({90, 0, 1, 117});
  for (const std::string how : {"replicated", "parameter_server", "distributed_replicated"})
    for (const std::string mode : {"SPLIT", "SCATTER"}) {
      const Launched outcome = mpirun(4, "", MPI_FEED " " + how + " " + data.dir().path() + " " + mode);
      INFO(how << " " << mode << "\n" << outcome.text);
      CHECK(outcome.ok == 4);
    }
}

TEST_CASE("processes: a parameter server is brought all updates once, whenever they come") {
  const Data data({90, 0, 1, 117});
  const Launched outcome = mpirun(4, "", MPI_FEED " asynchronous " + data.dir().path());
  INFO(outcome.text);
  CHECK(outcome.ok == 4);
}

TEST_CASE("processes: one that is killed or stopped ends the feeds of the others, inside the timeout") {
  const Data data({90, 117});
  for (const std::string what : {"kill", "stop"}) {
    const Launched outcome = mpirun(4, "--enable-recovery", MPI_FEED " " + what + " " + data.dir().path());
    INFO(what << "\n" << outcome.text);
    CHECK(outcome.ok >= 3);
  }
}

TEST_CASE("processes: one that stops early ends no other") {
  const Data data({90, 117});
  const Launched outcome = mpirun(3, "", MPI_FEED " outlive " + data.dir().path());
  INFO(outcome.text);
  CHECK(outcome.ok == 3);
}
