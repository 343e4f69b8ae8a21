// A user's program: MPI processes that share a feed, for which the first process reads.
#include <feedline/feeder.h>
#include <feedline/mpi_communicator.h>
#define OMPI_SKIP_MPICXX
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <string>

int main(int argc, char** argv) try {
  int given = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  long long fed = 0, all = 0;
  int rank = 0, ranks = 0;
  {
    const std::shared_ptr<feedline::Communicator> communicator = feedline::mpi_communicator();
    rank = communicator->rank();
    ranks = communicator->size();
    const auto pipeline = feedline::parse_pipeline("source { files: '" + std::string(argv[1]) +
                                                   "' }"
                                                   "feature { name: 'label' dtype: INT64 }"
                                                   "batch { global_batch_size: 64 last_batch_policy: PARTIAL }"
                                                   "distribute { mode: SCATTER }");
    feedline::Feeder feeder(pipeline, {.communicator = communicator});
    while (auto batch = feeder.next()) fed += batch.valid_count();
  }
  MPI_Reduce(&fed, &all, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("%d ranks fed %lld\n", ranks, all);
  MPI_Finalize();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;  // without MPI_Finalize(): see mpi_communicator.h
}
