// A rank of mpi_feed_test, under mpirun: mpi_feed WHAT FOLDER. Says "ok" where all was as it should be.
// "make", without mpirun: makes data there.
#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>

#include "distributed.h"
#include "feedline/mpi_communicator.h"

using namespace feedline;
using namespace feedline::test;

namespace {

Pipeline pipeline_of(const std::string& folder, const std::string& mode) {
  return parse_pipeline("source { files: 'part-*.tfrecord' } feature { name: 'id' dtype: INT64 } " + outputs +
                            "shuffle { block_size: '16KiB' buffer_size: 60 } " + batch_text(24, "PAD") +
                            "distribute { mode: " + mode + " } ",
                        folder);
}

// Two epochs, against what each rank reads by itself.
void feeds(const std::string& folder, const std::string& mode) {
  const Ends ends = mpi_communicator();
  const Pipeline pipeline = pipeline_of(folder, mode);
  const Texts wanted = mode == "REPLICATE" ? split(pipeline, 0, 1, 1) : split(pipeline, ends->rank(), ends->size(), 1);
  Feeder feeder(pipeline, of_rank(ends, 1));
  Texts texts = epoch_of(feeder);
  feeder.set_epoch(1);  // where it is, on all ranks
  const Texts second = epoch_of(feeder);
  texts[0].insert(texts[0].end(), second[0].begin(), second[0].end());
  if (texts != wanted) throw std::runtime_error(mode + ": other batches");
}

// Rank 2 is lost in the middle of an epoch: the others end soon, and name it.
void loses(const std::string& folder, const std::string& mode, int signal) {
  const Ends ends = mpi_communicator({.timeout = std::chrono::seconds(2)});
  Feeder feeder(pipeline_of(folder, mode).with("epoch.repeat", "-1"), of_rank(ends, 1));
  const pid_t mine = getpid();
  try {
    for (int step = 0;; step++) {
      feeder.next();
      if (ends->rank() == 2 && step == 20) {
        if (signal == SIGSTOP && fork() == 0) {  // who wakes it when all is over
          sleep(8);
          kill(mine, SIGCONT);
          _exit(0);
        }
        raise(signal);
      }
    }
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.find("rank 2, call ") == std::string::npos || text.find("silent for 2 s") == std::string::npos) throw;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 2 ? argv[1] : "", folder = argc > 2 ? argv[2] : "";
  if (what == "make") {
    std::vector<std::string> records;
    for (int64_t id = 0; id < 207; id++) records.push_back(sample(id));
    write_records(folder + "/part-000.tfrecord", records);
    return 0;
  }
  int given = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    if (what == "kill" || what == "stop") {
      loses(folder, what == "kill" ? "SPLIT" : "REPLICATE", what == "kill" ? SIGKILL : SIGSTOP);
    } else {
      feeds(folder, what);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    _exit(1);
  }
  char host[64] = "";
  gethostname(host, sizeof host);
  std::printf("rank %d on %s ok\n", rank, host);
  std::fflush(stdout);
  if (what == "kill" || what == "stop") _exit(0);  // see mpi_communicator.h
  MPI_Finalize();
}
