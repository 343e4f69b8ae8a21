// feedline stats: statistics of what a pipeline delivers, with the `normalize` blocks and class weights that follow
// from them.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "io/output_file.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/commands/pipeline_flags.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"
#include "tool/common/text_file.h"
#include "tool/feeding/epoch_audit.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/stats/collect_stats.h"
#include "tool/stats/stats_table.h"

namespace feedline::tool {
namespace {

struct StatsArgs {
  PipelineArgs pipeline;
  std::string records;  // empty: all
  std::string html;     // empty: no page is written
  bool json = false;
};

int print_stats(const StatsArgs& args) {
  std::optional<SampleSize> sample;
  if (!args.records.empty()) sample = parse_sample_size(args.records, "--records");
  const Pipeline pipeline = load(args.pipeline);
  if (args.pipeline.world_size > 1 && args.pipeline.meet.empty())
    throw UsageError("--world-size: ranks must connect to each other to combine statistics; add --meet ADDRESS:PORT");
  Options options = feeder_options(args.pipeline);
  compare_flags(options, {"the command stats", sample ? "--records " + args.records : "no --records"});
  const std::shared_ptr<Transport> ranks = options.communicator;
  const CollectedStats stats = telling(ranks, [&] { return collect_stats(pipeline, std::move(options), sample); });
  const auto differs = audit_failure(stats.report);
  std::optional<Error> unwritten;
  if (args.pipeline.rank == 0) {
    const Json json = stats_json(stats, pipeline, sample);
    if (!args.html.empty()) try {
        io::remove_unfinished(args.html);
        write_text(args.html, stats_page(json));
      } catch (const Error& error) {  // the statistics must not be lost with the page
        unwritten = error;
      }
    args.json ? print_document(json) : fmt::print("{}", stats_table(json));
  } else if (args.json) {
    print_document({{"rank", args.pipeline.rank}});
  }
  if (unwritten) print_error("{}", unwritten->what());
  if (differs) print_error("{}", *differs);
  return unwritten || differs ? 1 : 0;
}

}  // namespace

void add_stats(CLI::App& app, Run& run) {
  const auto [command, args] = add_command(
      app, run, "stats",
      "print statistics of a pipeline's outputs, and 'normalize' blocks and class weights based on them", print_stats);
  add_text_args(command, args.pipeline);
  add_rank_args(command, args.pipeline);
  add_option(command, "--records N|P%", args.records,
             "take a random sample: N records, or P% of all (default: all records)");
  add_option(command, "--html FILE", args.html, "also write a page with histograms to FILE (default: none)");
  command.add_flag("--json", args.json, "print the statistics as JSON; of several ranks, only rank 0 prints them");
}

}  // namespace feedline::tool
