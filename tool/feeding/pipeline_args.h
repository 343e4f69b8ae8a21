// The pipeline that a command works on, and how it is split, from the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/pipeline.h"

namespace feedline::cli {

struct PipelineArgs {
  std::vector<std::string> texts;  // the second and later ones are laid over the first
  std::vector<std::string> set;    // PATH=VALUE
  int replicas = 1;
  std::string devices = {};  // instead of replicas, see parse_devices()
  int rank = 0, world_size = 1;
  std::string meet = {};  // ADDRESS:PORT of rank 0, if ranks are to know of one another
};

/// PIPELINE..., --set and --replicas.
void add_pipeline_args(CLI::App& command, PipelineArgs& args);
/// --devices, for commands that do not look into batches.
void add_device_args(CLI::App& command, PipelineArgs& args);
/// --rank, --world-size and --meet.
void add_rank_args(CLI::App& command, PipelineArgs& args);

/// Throws UsageError for a --set, rank, world size or place to meet that makes no sense, Error for a text that does
/// not.
Pipeline load(const PipelineArgs& args);

/// The devices, or as many virtual replicas, as asked for; progress of the counting pass on a terminal, which an
/// interrupt ends. Waits for the other ranks, if they are to be met.
Options feeder_options(const PipelineArgs& args);

}  // namespace feedline::cli
