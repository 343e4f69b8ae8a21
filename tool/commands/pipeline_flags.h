// The arguments that name a pipeline on the command line, and say how it is divided among ranks and replicas.
#pragma once

#include <CLI/CLI.hpp>

#include "tool/feeding/pipeline_args.h"

namespace feedline::tool {

/// Adds PIPELINE... and --set.
void add_text_args(CLI::App& command, PipelineArgs& args);
/// Adds PIPELINE..., --set and --replicas.
void add_pipeline_args(CLI::App& command, PipelineArgs& args);
/// Adds --devices, for commands that do not read the content of batches, which may then lie on GPUs.
void add_device_args(CLI::App& command, PipelineArgs& args);
/// Adds --rank, --world-size, --meet and --meet-open.
void add_rank_args(CLI::App& command, PipelineArgs& args);

}  // namespace feedline::tool
