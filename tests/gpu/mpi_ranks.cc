// A rank of mpi_communicator_test, under mpirun: mpi_ranks WHAT. Says "ok" where all was as it should be.
#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "feedline/mpi_communicator.h"
#include "gpu/communicator_conformance.h"

using namespace feedline;
using namespace feedline::test;

namespace {

constexpr std::chrono::seconds silence(2);

// All end, and name it: also a stopped one, when it goes on.
void loses(Communicator& c, int signal) {
  const pid_t mine = getpid();
  std::vector<pid_t> all(static_cast<size_t>(c.size()));
  c.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), Stream::host);
  if (c.rank() == 2) raise(signal);
  const Error error = error_of([&] { c.barrier(); });
  if (c.rank() == 0) kill(all[2], SIGCONT);
  expect(error.message().find("rank 2, call 1: silent for") == 0, error.message());
}

// Longer than a rank may be silent, but it is not: it is busy.
void pauses(Communicator& c) {
  for (int call = 0; call < 3; call++) {
    if (c.rank() == call) std::this_thread::sleep_for(silence * 3 / 2);
    c.barrier();
  }
}

void run(const std::string& what) {
  const bool is_silent = what == "kill" || what == "stop" || what == "pause";
  auto c = mpi_communicator({.timeout = is_silent ? silence : std::chrono::minutes(1)});
  if (what == "conformance") conformance(*c);
  if (what == "differently") calls_differently(*c);
  if (what == "parts") sends_what_nobody_wants(*c);
  if (what == "abort") aborts(*c);
  if (what == "leave") leaves(std::move(c));
  if (what == "pause") pauses(*c);
  if (what == "kill") loses(*c, SIGKILL);
  if (what == "stop") loses(*c, SIGSTOP);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  int given = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    run(what);
    std::printf("rank %d ok\n", rank);
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
  }
  std::fflush(stdout);
  if (what == "conformance" || what == "pause") {
    MPI_Finalize();
    return 0;
  }
  // Behind a failure MPI may not be able to end. So that all are heard, nobody goes before the slowest has spoken.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  _exit(0);
}
