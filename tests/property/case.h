// A random pipeline over the data of data_files.h, and the ways in which it is fed. It is drawn from a seed, written as
// text, and simplified.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace feedline::test {

struct Case {
  // The pipeline.
  std::vector<int> sets;        // numbers of data sets, one source each
  std::vector<double> weights;  // the mixture's weights, one for each source; empty: no mixture
  std::string stop;             // mixture.stop
  uint64_t stride = 0;          // index.stride; 0: the default
  std::string part;             // a range or shards of the first source
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
  bool variable = false;   // the outputs include features without a fixed length
  int64_t max_values = 0;  // of these: no record has more; 0: no limit
  int host_prefetch = 2;

  // The ways in which it is fed besides the plain one.
  int world = 1;       // ranks
  int replicas = 1;    // replicas in a rank
  int threads = 1;     // besides one thread
  int64_t resume = 0;  // a second feeder resumes after this many steps
  std::string cache;   // a cache of records, as text; empty: none
  int64_t steps = 40;  // steps to compare, over all epochs

  bool mixture() const { return !weights.empty(); }
};

Case draw_case(std::mt19937_64& random);

/// Returns the pipeline as a user would write it; `compressed`: over the gzip files; `memory_limit`: left out if empty.
std::string text_of(const Case& c, bool compressed, int threads, const std::string& memory_limit,
                    const std::string& index_dir);

/// Returns how the case is fed, for people to read.
std::string how_of(const Case& c);

/// Returns the simpler cases: for each thing that the case has, the case without it.
std::vector<Case> simpler_cases(const Case& c);

}  // namespace feedline::test
