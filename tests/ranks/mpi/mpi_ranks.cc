// A rank of mpi_communicator_test, under mpirun: mpi_ranks WHAT.
#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>

#include "feedline/mpi_communicator.h"
#include "ranks/process_ranks.h"
#include "support/ranks.h"

namespace {

using namespace feedline::test;

char state_of(int pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(status)), {});
  const size_t name_end = text.rfind(')');
  return name_end + 2 < text.size() ? text[name_end + 2] : '?';
}

// Rank 0 leaves while rank 1 is stopped, so rank 0's last message cannot be sent in time. (The test makes MPI send
// nothing before the receiver asks for it.) When rank 1 continues, it must be told that rank 0 has left, and nothing
// else, whatever rank 0's memory holds by then.
void leaves_unheard(int rank) {
  auto c = feedline::mpi_communicator({.timeout = std::chrono::seconds(20)});
  int other = getpid();
  MPI_Bcast(&other, 1, MPI_INT, 1, MPI_COMM_WORLD);
  if (rank == 1) {
    lose_this_process(SIGSTOP);
    const feedline::Error error = error_of([&] { c->barrier(); });
    expect(error.message() ==
               "rank 0, call 0: the rank has destroyed its communicator, so this call cannot be completed; see the "
               "error of that rank",
           error.message());
    MPI_Send(&other, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    return;
  }
  while (state_of(other) != 'T') std::this_thread::yield();
  c.reset();
  // Uses freed memory again until the process ends. Several threads do so, because each may have an arena of its own.
  side_by_side(8, [](int) {
    for (size_t size = 16; size < 4096; size += 16)
      for (int i = 0; i < 20; i++) std::memset(new std::byte[size], 0xee, size);
  });
  MPI_Recv(&other, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  int given = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (what == "leave_unheard") {
    try {
      leaves_unheard(rank);
      std::printf("rank %d ok\n", rank);
    } catch (const std::exception& error) {
      std::printf("rank %d: %s\n", rank, error.what());
      std::fflush(stdout);
      _exit(1);
    }
    std::fflush(stdout);
    MPI_Finalize();
    return 0;
  }
  feedline::test::act_as_rank(rank, what, "call 1: silent for",
                              [](auto timeout) { return feedline::mpi_communicator({.timeout = timeout}); });
  if (what == "conformance" || what == "pause") {
    MPI_Finalize();
    return 0;
  }
  // After a failure MPI may be unable to finalize. The pause lets the slowest rank print its result before any rank
  // exits.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  _exit(0);
}
