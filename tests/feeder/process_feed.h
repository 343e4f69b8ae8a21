// What the processes of a test do: each runs one feed as one rank.
#pragma once

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <thread>

#include "distributed.h"
#include "support/process.h"

namespace feedline::test {

inline Pipeline pipeline_of(const std::string& folder, const std::string& mode) {
  return parse_pipeline("source { files: 'part-*.tfrecord' } feature { name: 'id' dtype: INT64 } " + outputs +
                            "shuffle { block_size: '16KiB' buffer_size: 60 } " + batch_text(24, "PAD") +
                            "distribute { mode: " + mode + " } ",
                        folder);
}

// Feeds two epochs and compares them with what each rank reads by itself.
inline void feeds(const Ends& ends, const std::string& folder, const std::string& mode) {
  const Pipeline pipeline = pipeline_of(folder, mode);
  const Texts wanted = mode == "REPLICATE" ? split(pipeline, 0, 1, 1) : split(pipeline, ends->rank(), ends->size(), 1);
  Feeder feeder(pipeline, of_rank(ends, 1));
  Texts texts = epoch_of(feeder);
  feeder.set_epoch(1);  // the epoch in which it already is, on all ranks
  const Texts second = epoch_of(feeder);
  texts[0].insert(texts[0].end(), second[0].begin(), second[0].end());
  if (texts != wanted) throw std::runtime_error(mode + ": other batches");
}

// Loses rank 2 in the middle of an epoch, by "kill" or "stop". The other ranks must end soon with an error that names
// rank 2; a rank that was delayed may still be starting then. They train slowly, so that batches are ready at every
// step. `dead` is what the error must say of a rank that was killed.
inline void loses(const Ends& ends, const std::string& folder, const std::string& how, const std::string& dead) {
  const bool stops = how == "stop";
  try {
    Feeder feeder(pipeline_of(folder, stops ? "REPLICATE" : "SPLIT").with("epoch.repeat", "-1"), of_rank(ends, 1));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int step = 0; std::chrono::steady_clock::now() < until; step++) {
      feeder.next();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (ends->rank() == 2 && step == 20) lose_this_process(stops ? SIGSTOP : SIGKILL);
    }
    throw std::runtime_error("nobody has noticed");
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.find("rank 2, call ") == std::string::npos ||
        text.find(stops ? "silent for 2 s" : dead) == std::string::npos)
      throw;
  }
}

// Rank 2 leaves after one epoch. This must be no failure for the ranks that read on for longer than `silence`, the time
// for which a rank may be silent.
inline void outlives(Ends ends, const std::string& folder) {
  const bool leaves = ends->rank() == 2;
  Feeder feeder(pipeline_of(folder, "SPLIT"), of_rank(std::move(ends), 1));
  const auto until = std::chrono::steady_clock::now() + (leaves ? std::chrono::seconds(0) : 2 * silence);
  do {
    epoch_of(feeder);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  } while (std::chrono::steady_clock::now() < until);
}

inline void say_ok(int rank) {
  char host[64] = "";
  gethostname(host, sizeof host);
  std::printf("rank %d on %s ok\n", rank, host);
  std::fflush(stdout);
}

}  // namespace feedline::test
