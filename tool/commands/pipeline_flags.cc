#include "tool/commands/pipeline_flags.h"

#include <cstdint>

#include "tool/commands/flags.h"

namespace feedline::tool {

void add_text_args(CLI::App& command, PipelineArgs& args) {
  command.add_option("PIPELINE", args.texts, "pipeline files; each is merged over those before it")
      ->required()
      ->option_text("...");
  command
      .add_option("--set", args.set,
                  "set one field of the pipeline, such as batch.last_batch_policy=PAD; may be repeated")
      ->option_text("PATH=VALUE")
      ->take_all()
      ->allow_extra_args(false);
}

void add_pipeline_args(CLI::App& command, PipelineArgs& args) {
  add_text_args(command, args);
  command.add_option("--replicas", args.replicas, "number of replicas on the host that share each batch (default: 1)")
      ->check(whole_number(1, 1024))
      ->option_text("N");
}

void add_device_args(CLI::App& command, PipelineArgs& args) {
  command
      .add_option("--devices", args.devices,
                  "one replica on each device of the list: host:4, cuda (all GPUs), cuda:0,1, cuda:GPU-5a1b (by "
                  "UUID), or auto (all GPUs, or the host if there is none)")
      ->excludes("--replicas")
      ->option_text("LIST");
}

void add_rank_args(CLI::App& command, PipelineArgs& args) {
  command.add_option("--rank", args.rank, "rank of this process (default: 0)")
      ->check(whole_number(0, INT32_MAX))
      ->option_text("R");
  command.add_option("--world-size", args.world_size, "number of processes that share the data (default: 1)")
      ->check(whole_number(1, INT32_MAX))
      ->option_text("W");
  CLI::Option* const meet =
      command
          .add_option(
              "--meet", args.meet,
              "address at which rank 0 waits for the other ranks, 10 minutes at most; they then compare pipelines and "
              "data, share the counting, learn if one fails, and can use the pipeline's `distribute` (default: none, "
              "each rank is by itself). On several machines the ranks need a secret, the same for all, in the "
              "variable FEEDLINE_MEET_TOKEN: for example that of openssl rand -hex 16")
          ->check(CLI::Validator([](const std::string& text) { return text.empty() ? "it is empty" : ""; }, ""))
          ->option_text("ADDRESS:PORT");
  command
      .add_flag("--meet-open", args.meet_open,
                "let any process that reaches rank 0 come as a rank, without a secret, in a network that you trust")
      ->needs(meet);
}

}  // namespace feedline::tool
