// Finds in the plan of a feed what is known to slow the feed down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

struct Plan;

/// The figures of a plan that the rules of advice look at.
struct FeedFigures {
  ShuffleMode shuffle = ShuffleMode::none;
  uint64_t samples = 0;       // samples of a pass over the data; 0: not counted yet
  uint64_t sample_bytes = 0;  // bytes of a sample's records, on average
  uint64_t read_bytes = 0;    // GLOBAL: bytes read, or inflated, for a sample, on average
  bool inflates = false;      // some files are compressed
  uint64_t files = 0;
  uint64_t file_bytes = 0;      // size on disk of all files together
  uint64_t inflated_bytes = 0;  // inflated size of all compressed files together that have too few seek points
  bool keeps_records = false;   // the pipeline has a cache of records
  int threads = 1;
  int64_t steps = -1;             // steps of an epoch; -1: not known, or without end
  uint64_t batch_rows = 0;        // the rows of a replica's batch, where each frame of a window counts
  uint64_t batch_bytes = 0;       // the records and the tensors of a replica's batch
  bool costly_rows = false;       // rows are made from pictures or tables, which takes longer than their bytes suggest
  int host_prefetch = 0;          // as the pipeline sets it; 0: not set
  uint64_t batches = 0;           // the batches in a replica's ring of batch buffers
  uint64_t batches_if_unset = 0;  // the batches of the ring if the pipeline did not set host_prefetch
};
FeedFigures figures_of(const Plan& plan);

/// Returns texts for the user, one for each thing that is known to slow such a feed down, with its figures and what to
/// do about it. The thresholds are measured: bench/results/trainers.md#what-check-warns-of.
std::vector<std::string> advice(const FeedFigures& feed);

}  // namespace feedline::flow
