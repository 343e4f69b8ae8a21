// feedline dump: writes the tensors of an epoch as .npy files, and a report.json about it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "feedline_pipeline.pb.h"
#include "io/output_file.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/commands/pipeline_flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/json.h"
#include "tool/common/lock.h"
#include "tool/common/terminal.h"
#include "tool/common/text_file.h"
#include "tool/feeding/epoch_audit.h"
#include "tool/feeding/feed.h"
#include "tool/feeding/output_files.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/feeding/state_file.h"
#include "trainer_bridge/report_json.h"

namespace feedline::tool {
namespace {

namespace fs = std::filesystem;

struct DumpArgs {
  PipelineArgs pipeline;
  std::string out;
  uint64_t epoch = 0;
  uint64_t steps = 0;  // 0: all steps
  std::string state;   // empty: no state is kept
  bool accept_changes = false;
};

std::vector<std::unique_ptr<OutputFiles>> open_outputs(const std::string& folder,
                                                       const std::vector<ElementSpec>& elements) {
  std::vector<std::unique_ptr<OutputFiles>> outputs;
  std::set<std::string> names;
  for (const ElementSpec& element : elements) {
    outputs.push_back(std::make_unique<OutputFiles>(folder, element));
    for (const std::string& name : outputs.back()->names()) {
      if (!names.insert(name).second) {
        throw Error(Category::bad_pipeline,
                    fmt::format("two outputs would be written to {}; rename output '{}'", name, element.name));
      }
    }
  }
  return outputs;
}

struct Dumped {
  Report report;
  std::vector<std::string> files;  // the data files; `@file` is an index into this list
  int64_t samples = 0;             // written samples, without rows that stand in for missing records
  std::optional<Error> error;
};

/// Takes a replica's next batch. Returns false at the end of the epoch, after an interrupt, and after an error, which
/// it stores in result.error.
bool take_batch(Feeder& feeder, int replica, Batch& batch, Dumped& result) {
  try {
    for (;;) {
      const Next next = feeder.next(replica, std::chrono::milliseconds(100), batch);
      if (next != Next::not_ready) return next == Next::batch;
      if (Interrupt::happened()) return false;
    }
  } catch (const Error& error) {
    if (!result.error) result.error = error;
    return false;
  }
}

/// Returns how many steps the dump will have made at its end; 0: unknown. It has made `taken` steps, and now makes step
/// `step` of the epoch. `most` is the limit that --steps sets; 0: no limit.
uint64_t steps_of_dump(const Feeder& feeder, uint64_t most, uint64_t taken, uint64_t step) {
  if (feeder.steps_per_epoch() < 0) return most;
  const uint64_t all = taken + static_cast<uint64_t>(feeder.steps_per_epoch()) - step;
  return most > 0 ? std::min(most, all) : all;
}

/// Takes batches and writes them until the epoch ends, `steps` steps are done (0: no limit) or the feed fails. The rows
/// of a step are written in the order of the replicas. Throws Error stalled after an interrupt.
void take_epoch(Feeder& feeder, uint64_t steps, std::vector<std::unique_ptr<OutputFiles>>& outputs, Dumped& result) {
  Progress progress("dumping", steps, "step");
  bool more = true;
  for (uint64_t taken = 0; more && (steps == 0 || taken < steps); taken++) {
    more = false;
    for (int replica = 0; replica < feeder.replicas(); replica++) {
      Batch batch;
      if (!take_batch(feeder, replica, batch, result)) continue;
      more = true;
      for (const auto& output : outputs) output->append(batch);
      result.samples += batch->valid_count();
      progress.set(taken + 1, steps_of_dump(feeder, steps, taken, batch->step()));
    }
    Interrupt::check();
  }
}

void dump_rows(const DumpArgs& args, const Pipeline& pipeline, Options options, Dumped& result) {
  options.epoch = args.epoch;
  options.deliver_before_error = true;
  std::optional<StateFile> state;
  if (!args.state.empty()) state.emplace(args.state);
  Feeder feeder(pipeline, std::move(options));
  if (state) state->restore(feeder, args.accept_changes);
  result.files = feeder.files();
  print_warnings(feeder);

  auto outputs = open_outputs(args.out, feeder.elements());
  take_epoch(feeder, args.steps, outputs, result);
  result.report = feeder.report();
  for (const auto& output : outputs) output->close();
  if (state && !result.error) state->save(feeder.get_state());
}

void dump_epoch(const DumpArgs& args, Dumped& result) {
  const Pipeline pipeline = load(args.pipeline);
  const config::Epoch& epoch = pipeline.message().epoch();
  if (epoch.repeat() < 0 && epoch.steps() == 0 && args.steps == 0)
    throw Error(
        Category::bad_pipeline,
        "epoch.repeat is -1, so the epoch never ends and cannot be dumped as a whole; dump the first N steps of "
        "it with --steps N, or one pass over the data with --set epoch.repeat=1");
  Options options = feeder_options(args.pipeline);
  const std::shared_ptr<Transport> ranks = options.communicator;
  compare_flags(options, {"the command dump", fmt::format("--epoch {}", args.epoch),
                          args.steps == 0 ? "no --steps" : fmt::format("--steps {}", args.steps),
                          telling(ranks, [&] { return state_at(args.state); })});
  telling(ranks, [&] { dump_rows(args, pipeline, std::move(options), result); });
}

void write_report(const fs::path& folder, const Dumped& result) {
  const Json report = report_json(result.report);
  Json json;
  for (const char* key : {"records", "steps", "dropped_samples", "filler_rows", "audit", "epoch_audit", "bad_records",
                          "dropped", "filler", "errors_total"})
    json[key] = report.at(key);
  json["samples"] = result.samples;
  json["errors"] = errors_json(result.report, result.error);
  json["files"] = result.files;
  write_text(folder / "report.json", document_text(json));
}

int dump(const DumpArgs& args) {
  const Interrupt interrupt;
  const LockedFolder lock(args.out);
  io::remove_unfinished(args.out,
                        [](std::string_view name) { return name.ends_with(".npy") || name == "report.json"; });
  Dumped result;
  try {
    dump_epoch(args, result);
  } catch (const Error& thrown) {
    result.error = thrown;
  }
  try {
    write_report(args.out, result);
  } catch (const Error& error) {
    if (!result.error) throw;
    print_error("{}", error.what());
  }
  if (result.error) throw *result.error;
  fmt::print("{} in {}, to {}\n", format_count(static_cast<uint64_t>(result.samples), "sample"),
             format_count(result.report.steps, "step"), args.out);
  const auto differs = audit_failure(result.report);
  if (differs) print_error("{}", *differs);
  return differs ? 1 : 0;
}

}  // namespace

void add_dump(CLI::App& app, Run& run) {
  const auto [command, args] = add_command(
      app, run, "dump", "write the outputs of an epoch as .npy files, with a report.json beside them", dump);
  add_pipeline_args(command, args.pipeline);
  add_rank_args(command, args.pipeline);
  add_option(command, "--out DIR", args.out, "folder to write to; it is created if it does not exist")->required();
  CLI::Option* const epoch =
      add_number(command, "--epoch E", args.epoch, whole_number(0), "number of the epoch; the first is 0 (default: 0)");
  add_number(command, "--steps N", args.steps, whole_number(1), "write at most N steps (default: the whole epoch)");
  CLI::Option* const state =
      add_option(command, "--state FILE", args.state,
                 "store the position of the dump in FILE; if FILE exists, continue at that position; use a different "
                 "--out then")
          ->excludes(epoch);
  command
      .add_flag("--accept-changes", args.accept_changes,
                "continue at the step in the state file even if the data or the pipeline has changed since then")
      ->needs(state);
}

}  // namespace feedline::tool
