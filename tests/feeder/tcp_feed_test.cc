// Feeds in processes that are connected by TCP.
#include "data.h"
#include "support/catch.h"
#include "support/launch.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("tcp: each process is given what it would be given if it read its own") {
  const Data data({90, 0, 1, 117});
  for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"})
    for (const int ranks : {1, 2, 4, 8}) {
      const Launched launched = torchrun(ranks, TCP_FEED " " + mode + " " + data.dir().path());
      INFO(mode << " " << ranks << "\n" << launched.text);
      CHECK(launched.ok == ranks);
    }
}

TEST_CASE("tcp: a process that is killed or stopped ends the feeds of the others") {
  const Data data({90, 117});
  for (const std::string what : {"kill", "stop"}) {
    const Launched launched = torchrun(4, TCP_FEED " " + what + " " + data.dir().path());
    INFO(what << "\n" << launched.text);
    CHECK(launched.ok == (what == "kill" ? 3 : 4));
  }
}

TEST_CASE("tcp: a process that stops early ends no other") {
  const Data data({90, 117});
  const Launched launched = torchrun(3, TCP_FEED " outlive " + data.dir().path());
  INFO(launched.text);
  CHECK(launched.ok == 3);
}
