// What the processes of a test do: each is one rank.
#pragma once

#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include "ranks/communicator_conformance.h"
#include "support/process.h"

namespace feedline::test {

using MakeCommunicator = std::function<std::unique_ptr<Communicator>(std::chrono::milliseconds timeout)>;

// All ranks must end with an error that names rank 2, also rank 2 itself when it continues. `made` is the number of
// calls that making the communicator took.
inline void is_stopped(Communicator& c, int made) {
  c.barrier();
  if (c.rank() == 2) lose_this_process(SIGSTOP);
  const Error error = error_of([&] { c.barrier(); });
  expect(error.message().find("rank 2, call " + std::to_string(made + 1) + ": silent for") == 0, error.message());
}

// `dead` is what the error must say of the killed rank. The other ranks may be told of its death before their own part
// of the first call is over.
inline void is_killed(Communicator& c, const std::string& dead) {
  const Error error = error_of([&] {
    c.barrier();
    if (c.rank() == 2) lose_this_process(SIGKILL);
    c.barrier();
  });
  expect(error.message().find("rank 2, call ") == 0 && error.message().find(dead) != std::string::npos,
         error.message());
}

// A rank pauses for longer than a rank may be silent. That is no failure, because its communicator still answers.
inline void pauses(Communicator& c) {
  for (int call = 0; call < 3; call++) {
    if (c.rank() == call) std::this_thread::sleep_for(silence * 3 / 2);
    c.barrier();
  }
}

/// Runs the test named `what` and prints a line that ends in "ok" if all went as expected. `dead` is what the ranks
/// must say of a rank that was killed.
inline void act_as_rank(int rank, const std::string& what, const std::string& dead, const MakeCommunicator& make,
                        int made = 0) {
  try {
    auto c = make(what == "kill" || what == "stop" || what == "pause" ? silence : std::chrono::minutes(1));
    if (what == "conformance") conformance(*c);
    if (what == "differently") calls_differently(*c);
    if (what == "parts") sends_what_nobody_wants(*c);
    if (what == "abort") aborts(*c);
    if (what == "leave") leaves(std::move(c), made);
    if (what == "pause") pauses(*c);
    if (what == "kill") is_killed(*c, dead);
    if (what == "stop") is_stopped(*c, made);
    std::printf("rank %d ok\n", rank);
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
  }
  std::fflush(stdout);
}

}  // namespace feedline::test
