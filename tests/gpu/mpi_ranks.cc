// A rank of mpi_communicator_test, under mpirun: mpi_ranks WHAT.
#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include "feedline/mpi_communicator.h"
#include "gpu/process_ranks.h"

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  int given = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  feedline::test::act_as_rank(rank, what, "call 1: silent for",
                              [](auto timeout) { return feedline::mpi_communicator({.timeout = timeout}); });
  if (what == "conformance" || what == "pause") {
    MPI_Finalize();
    return 0;
  }
  // Behind a failure MPI may not be able to end. So that all are heard, nobody goes before the slowest has spoken.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  _exit(0);
}
