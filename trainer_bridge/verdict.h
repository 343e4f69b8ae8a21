// The verdict of a report: whether the trainer or the feed is the slower one, by how much, and what to do about it.
#pragma once

#include <cstdint>
#include <string>

#include "feedline/report.h"
#include "flowgraph/pipeline/spec.h"

namespace feedline {

/// The facts on which the advice depends, besides the counters.
struct VerdictFacts {
  bool global_shuffle = false;  // shuffle.mode is GLOBAL
  bool keeps_records = false;   // the pipeline has cache { what: RECORDS }
  bool can_cache = false;       // a cache could keep an output, and the pipeline has none
  uint64_t files = 0;           // that this rank reads, and the mean size of one
  uint64_t file_bytes = 0;
};
/// Returns the facts that follow from a pipeline; the files are left out.
VerdictFacts verdict_facts(const flow::PipelineSpec& spec);

/// Returns one or two sentences. Uses the counters of `report`, and neither its verdict nor its errors.
std::string verdict_of(const Report& report, const VerdictFacts& facts);

}  // namespace feedline
