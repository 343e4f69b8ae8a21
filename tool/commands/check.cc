// feedline check: tells whether a pipeline and its data fit together, and what feeding them would take; or whether the
// data has drifted from earlier statistics.
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/commands/pipeline_flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"
#include "tool/feeding/epoch_audit.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/stats/collect_stats.h"
#include "tool/stats/drift.h"
#include "tool/stats/stats_table.h"

namespace feedline::tool {
namespace {

struct CheckArgs {
  PipelineArgs pipeline;
  uint64_t records = 16;
  std::string against;  // a file with statistics; empty: the pipeline is checked
  DriftBounds bounds;
  bool json = false;
};

/// Parses the first records of each file, at most `of_each_file`, makes rows of them, and prints the result. Returns
/// whether a feed can succeed with such records: all of them must fit the pipeline or, if it skips bad records, at
/// least one.
bool try_records(const Feeder& feeder, uint64_t of_each_file) {
  const TriedRecords tried = feeder.try_records(of_each_file);
  if (tried.records > 0)
    fmt::print("tried    {} of {}{}: {}\n", format_count(tried.records, "record"), format_count(tried.files, "file"),
               tried.made < tried.records ? fmt::format(", and all rows of {} of them", format_count(tried.made)) : "",
               tried.failed == 0 ? "all fit the pipeline"
                                 : fmt::format("{} do not fit the pipeline", format_count(tried.failed)));
  for (const Error& error : tried.absent) print_error("warning: {}", error.what());
  const bool good = tried.errors.empty() || (!tried.raised && tried.failed < tried.records);
  for (const Error& error : tried.errors) print_error("{}{}", good ? "warning: " : "", error.what());
  return good;
}

/// Computes the statistics of the data as it is now, and compares them with the earlier statistics. If these are of a
/// sample, takes a sample of the same size.
int check_drift(const CheckArgs& args) {
  const Json before = read_statistics(args.against);
  const Pipeline pipeline = load(args.pipeline);
  std::vector<Drift> drifts;
  std::optional<std::string> differs;
  try {
    find_drift(before, before, args.bounds);  // throws at once if the document lacks something
    std::optional<SampleSize> sample;
    if (const Json& records = before.at("records"); !records.is_null())
      sample = parse_sample_size(records.get<std::string>(), args.against);
    const CollectedStats stats = collect_stats(pipeline, feeder_options(args.pipeline), sample);
    differs = audit_failure(stats.report);
    drifts = find_drift(before, stats_json(stats, pipeline, sample), args.bounds);
  } catch (const Json::exception& error) {
    const std::string_view why = error.what();  // "[json.exception.out_of_range.403] key 'rows' not found"
    throw Error(Category::bad_pipeline,
                fmt::format("the file does not hold what `feedline stats --json` prints: {}; make the file again with "
                            "that command",
                            why.substr(why.find(']') + 2)),
                Place::of_file(args.against));
  }
  if (args.json) {
    print_document(drift_json(drifts, args.bounds));
  } else {
    for (const Drift& drift : drifts)
      fmt::print("{}: {}: {}\n", drift.output.empty() ? "the data" : printable(drift.output), drift.kind,
                 drift.message);
    if (drifts.empty()) fmt::print("the data has not drifted: no change is more than its bound\n");
  }
  if (differs) print_error("{}", *differs);
  return drifts.empty() && !differs ? 0 : 1;
}

int check(const CheckArgs& args) {
  if (!args.against.empty()) return check_drift(args);
  const Interrupt interrupt;
  Options options = feeder_options(args.pipeline);
  options.plan_only = true;
  const Feeder feeder(load(args.pipeline), std::move(options));
  print_warnings(feeder);
  for (const std::string& advice : feeder.advice()) print_error("warning: {}", advice);
  fmt::print("{}", without_controls(feeder.plan_text(), "\n"));
  const bool good = try_records(feeder, args.records);
  Interrupt::check();  // a user who interrupted the check must not take it for a success
  return good ? 0 : 1;
}

}  // namespace

void add_check(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "check",
                  "check that a pipeline fits its data; print the order, the outputs and the memory plan", check);
  add_pipeline_args(command, args.pipeline);
  add_device_args(command, args.pipeline);
  CLI::Option* const records =
      add_number(command, "--records N", args.records, whole_number(0),
                 "parse the first N records of each file, but of at most 128 files; 0 parses none (default: 16)");
  CLI::Option* const against =
      add_option(command, "--against FILE", args.against,
                 "compare the data with the earlier statistics in FILE, which `feedline stats --json` printed; "
                 "the exit code is 1 if a change is more than its bound (default: check the pipeline)")
          ->excludes(records);
  add_number(command, "--max-shift X", args.bounds.shift, share(),
             "how much a distribution may change: the fraction of values whose label is now a different one, or the "
             "largest change of the fraction of numbers up to any value (default: 0.1)")
      ->needs(against);
  add_number(command, "--max-range X", args.bounds.range, share(),
             "how far values may lie outside the earlier range, as a fraction of its width (default: 0.1)")
      ->needs(against);
  add_number(command, "--max-missing X", args.bounds.missing, share(),
             "by how much the fraction of missing values, of values that are not finite, and of bad records may grow "
             "(default: 0.01)")
      ->needs(against);
  add_number(command, "--max-new-labels X", args.bounds.new_labels, share(),
             "which fraction of the values may have labels that the earlier statistics do not have (default: 0)")
      ->needs(against);
  command.add_flag("--json", args.json, "print the comparison as JSON")->needs(against);
}

}  // namespace feedline::tool
