// feedline check: tells whether a pipeline and its data fit together, and what feeding them would take.
#include <fmt/format.h>

#include <memory>

#include "tool/commands/commands.h"
#include "tool/common/flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/terminal.h"
#include "tool/feeding/pipeline_args.h"

namespace feedline::cli {
namespace {

struct Args {
  PipelineArgs pipeline;
  uint64_t records = 16;
};

/// Parses the first records of each file, at most `of_each_file`, and prints the result. Returns whether a feed can
/// succeed with such records: all must fit the features, or at least one if the pipeline skips bad records.
bool try_records(const Feeder& feeder, uint64_t of_each_file) {
  const TriedRecords tried = feeder.try_records(of_each_file);
  if (tried.records > 0)
    fmt::print("tried    {} of {}: {}\n", format_count(tried.records, "record"), format_count(tried.files, "file"),
               tried.failed == 0 ? "all fit the pipeline's features"
                                 : fmt::format("{} do not fit the pipeline's features", format_count(tried.failed)));
  for (const Error& error : tried.absent) fmt::print(stderr, "feedline: warning: {}\n", error.what());
  const bool good = tried.errors.empty() || (!tried.raised && tried.failed < tried.records);
  for (const Error& error : tried.errors) fmt::print(stderr, "feedline: {}{}\n", good ? "warning: " : "", error.what());
  return good;
}

int check(const Args& args) {
  const Interrupt interrupt;
  const Feeder feeder(load(args.pipeline), feeder_options(args.pipeline));
  print_warnings(feeder);
  fmt::print("{}", feeder.plan_text());
  return try_records(feeder, args.records) ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, Run& run) {
  auto args = std::make_shared<Args>();
  CLI::App* command = app.add_subcommand(
      "check", "check that a pipeline fits its data; print the order, the outputs and the memory plan");
  add_pipeline_args(*command, args->pipeline);
  add_device_args(*command, args->pipeline);
  command
      ->add_option("--records", args->records,
                   "parse the first N records of each file, or of 128 files if there are more; 0: none (default: 16)")
      ->check(whole_number(0))
      ->option_text("N");
  command->callback([args, &run] { run = [args] { return check(*args); }; });
}

}  // namespace feedline::cli
