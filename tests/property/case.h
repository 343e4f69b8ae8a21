// A random pipeline over the data of data_files.h, and how it is fed. Drawn from a seed, written as text, made simpler.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace feedline::test {

struct Case {
  // What the pipeline says.
  std::vector<int> sets;        // numbers of data sets: one source each
  std::vector<double> weights;  // of a mixture: one for each source; empty: no mixture
  std::string stop;             // of the mixture
  uint64_t stride = 0;          // index.stride; 0: the default
  std::string part;             // of the first source: a range, or shards
  std::string filter;
  bool windows = false;
  int64_t size = 1, shift = 1, frame_stride = 1;
  bool drop_remainder = true, across_files = false, key = false;
  int cycle_length = 1, block_length = 1;
  std::string mode = "NONE";
  int64_t buffer_size = 0;
  std::string block_size;
  bool shuffle_files = false;
  int64_t repeat = 1, epoch_steps = 0;
  int64_t global_batch = 8;
  std::string policy = "DROP";
  bool skip_record = false;
  bool variable = false;  // features of no fixed length are outputs, too
  int host_prefetch = 2;

  // How it is fed, beside the plain way.
  int world = 1;       // ranks
  int replicas = 1;    // of a rank
  int threads = 1;     // beside 1
  int64_t resume = 0;  // a second feeder goes on after so many steps
  int64_t steps = 40;  // that are compared, over all epochs

  bool mixture() const { return !weights.empty(); }
};

Case draw_case(std::mt19937_64& random);

/// The pipeline as a user would write it. compressed: from the gzip files. memory_limit, index_mode: empty: not said.
std::string text_of(const Case& c, bool compressed, int threads, const std::string& memory_limit,
                    const std::string& index_dir);

/// How the case is fed, for people.
std::string how_of(const Case& c);

/// The case with one thing less, for each thing that it has.
std::vector<Case> simpler_cases(const Case& c);

}  // namespace feedline::test
