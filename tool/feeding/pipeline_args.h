// The command line arguments that name a pipeline and say how it is divided among ranks and replicas.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "feedline/feeder.h"
#include "feedline/pipeline.h"
#include "ranks/current_error.h"
#include "tool/common/interrupt.h"

namespace feedline::tool {

struct PipelineArgs {
  std::vector<std::string> texts;  // pipeline files; settings in later files override those in earlier files
  std::vector<std::string> set;    // PATH=VALUE
  int replicas = 1;
  std::string devices = {};  // replaces `replicas`; see parse_devices()
  int rank = 0, world_size = 1;
  std::string meet = {};   // ADDRESS:PORT of rank 0; empty: the ranks do not communicate
  bool meet_open = false;  // rank 0 accepts any process, without a secret
};

/// Returns the pipeline. Throws UsageError for a --set, --rank or --meet that makes no sense, and Error for a pipeline
/// text that makes no sense.
Pipeline load(const PipelineArgs& args);

/// Returns the feeder's options: the devices, or the replicas on the host, and a callback that shows how far the
/// counting of the records is, and ends the counting on Ctrl-C. With --meet, also makes a communicator and waits until
/// the other ranks have connected.
Options feeder_options(const PipelineArgs& args);

/// Compares `flags` between the ranks that have met: the command, and the flags that decide where the run begins and
/// ends, such as "--steps 3". Throws Error bad_pipeline on all ranks if the flags of one rank differ, because that rank
/// would end before the others. All ranks must make this call. Ranks that run the same command must pass the same
/// number of flags.
void compare_flags(const Options& options, const std::vector<std::string>& flags);

/// Calls `work`, and returns what it returns. If `work` throws, sends the error to the other ranks of `ranks` (null:
/// there are none), so that they do not wait for this rank, and throws it again. Sends nothing after an interrupt.
template <typename Work>
auto telling(const std::shared_ptr<Transport>& ranks, Work work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception&) {
    if (ranks && !Interrupt::happened()) ranks->abort(current_error());
    throw;
  }
}

/// Prints the feeder's warnings about its pipeline to stderr.
void print_warnings(const Feeder& feeder);

}  // namespace feedline::tool
