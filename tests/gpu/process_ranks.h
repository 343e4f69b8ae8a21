// What ranks that are processes do, one of them in each process.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <thread>

#include "gpu/communicator_conformance.h"

namespace feedline::test {

using MakeCommunicator = std::function<std::unique_ptr<Communicator>(std::chrono::milliseconds timeout)>;

inline constexpr std::chrono::seconds silence(2);

// All end, and name it: also a stopped one, when it goes on.
inline void loses(Communicator& c, int signal) {
  const pid_t mine = getpid();
  std::vector<pid_t> all(static_cast<size_t>(c.size()));
  // Of one that dies others may hear before their own part of the first call is over.
  const Error error = error_of([&] {
    c.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream::host);
    if (c.rank() == 2 && signal == SIGSTOP && fork() == 0) {  // who wakes it when all is over
      sleep(6);
      kill(mine, SIGCONT);
      _exit(0);
    }
    if (c.rank() == 2) raise(signal);
    c.barrier();
  });
  expect(error.message().find(signal == SIGSTOP ? "rank 2, call 1: silent for" : "rank 2, call ") == 0,
         error.message());
}

// Longer than a rank may be silent, but it is not: it is busy.
inline void pauses(Communicator& c) {
  for (int call = 0; call < 3; call++) {
    if (c.rank() == call) std::this_thread::sleep_for(silence * 3 / 2);
    c.barrier();
  }
}

/// Says "ok" where all was as it should be.
inline void act_as_rank(int rank, const std::string& what, const MakeCommunicator& make) {
  try {
    auto c = make(what == "kill" || what == "stop" || what == "pause" ? silence : std::chrono::minutes(1));
    if (what == "conformance") conformance(*c);
    if (what == "differently") calls_differently(*c);
    if (what == "parts") sends_what_nobody_wants(*c);
    if (what == "abort") aborts(*c);
    if (what == "leave") leaves(std::move(c));
    if (what == "pause") pauses(*c);
    if (what == "kill") loses(*c, SIGKILL);
    if (what == "stop") loses(*c, SIGSTOP);
    std::printf("rank %d ok\n", rank);
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
  }
  std::fflush(stdout);
}

}  // namespace feedline::test
