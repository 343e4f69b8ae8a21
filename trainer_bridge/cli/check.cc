// feedline check: whether a pipeline and its data fit together, and what they would take.
#include <fmt/format.h>

#include <memory>

#include "trainer_bridge/cli/commands.h"
#include "trainer_bridge/cli/interrupt.h"
#include "trainer_bridge/cli/pipeline_args.h"

namespace feedline::cli {
namespace {

int check(const PipelineArgs& args) {
  const Interrupt interrupt;
  const Feeder feeder(load(args), feeder_options(args));
  for (const std::string& warning : feeder.warnings()) fmt::print(stderr, "feedline: warning: {}\n", warning);
  fmt::print("{}", feeder.plan_text());
  return 0;
}

}  // namespace

void add_check(CLI::App& app, Run& run) {
  auto args = std::make_shared<PipelineArgs>();
  CLI::App* command =
      app.add_subcommand("check", "validate a pipeline against its data; print the stages, counts and the memory plan");
  add_pipeline_args(*command, *args);
  add_device_args(*command, *args);
  command->callback([args, &run] { run = [args] { return check(*args); }; });
}

}  // namespace feedline::cli
