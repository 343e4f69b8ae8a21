#include "tool/commands/pipeline_flags.h"

#include <cstdint>

#include "tool/commands/flags.h"

namespace feedline::tool {

void add_text_args(CLI::App& command, PipelineArgs& args) {
  add_option(command, "PIPELINE ...", args.texts,
             "pipeline files; settings in later files override those in earlier files")
      ->required();
  add_option(command, "--set PATH=VALUE", args.set,
             "set one field of the pipeline, such as batch.last_batch_policy=PAD; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
}

void add_pipeline_args(CLI::App& command, PipelineArgs& args) {
  add_text_args(command, args);
  add_number(command, "--replicas N", args.replicas, whole_number(1, 1024),
             "number of replicas on the host that share each batch (default: 1)");
}

void add_device_args(CLI::App& command, PipelineArgs& args) {
  add_option(command, "--devices LIST", args.devices,
             "one replica on each device of the list: host:4, cuda (all GPUs), cuda:0,1, cuda:GPU-5a1b (by UUID), "
             "or auto (all GPUs, or the host if there are no GPUs)")
      ->excludes("--replicas");
}

void add_rank_args(CLI::App& command, PipelineArgs& args) {
  add_number(command, "--rank R", args.rank, whole_number(0, INT32_MAX), "rank of this process (default: 0)");
  add_number(command, "--world-size W", args.world_size, whole_number(1, INT32_MAX),
             "number of processes that share the data (default: 1)");
  CLI::Option* const meet =
      command
          .add_option(
              "--meet", args.meet,
              "address at which rank 0 waits up to 10 minutes for the other ranks. The ranks then compare their "
              "pipelines and data, share the counting, notice if a rank fails, and can use the pipeline's 'distribute' "
              "(default: the ranks do not connect to each other). On several machines all ranks need the same secret "
              "in the environment variable FEEDLINE_MEET_TOKEN, for example the output of `openssl rand -hex 16`")
          ->check(CLI::Validator([](const std::string& text) { return text.empty() ? "address is missing" : ""; }, ""))
          ->option_text("ADDRESS:PORT");
  command
      .add_flag("--meet-open", args.meet_open,
                "accept any process that connects to rank 0, without a secret; only for networks that you trust")
      ->needs(meet);
}

}  // namespace feedline::tool
