// feedline run: feeds a sink, or a simulated trainer that takes a given time for each step, and reports how that went.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/byte_size.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/commands/pipeline_flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"
#include "tool/common/usage_error.h"
#include "tool/feeding/epoch_audit.h"
#include "tool/feeding/feed.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/feeding/state_file.h"
#include "tool/feeding/trace_file.h"
#include "trainer_bridge/monitor/http_server.h"
#include "trainer_bridge/report_json.h"

namespace feedline::tool {
namespace {

struct RunArgs {
  PipelineArgs pipeline;
  FeedOptions how;
  IoOptions io;
  std::string trace;  // a file; empty: no trace is recorded
  std::string monitor;
  bool verify_rows = false, json = false;
};

/// Returns the number, or null if there is none.
Json known(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

/// Returns the CPU time of the process per record. Precondition: result.records > 0.
double cpu_ns_per_record(const FeedResult& result) { return result.cpu_s * 1e9 / static_cast<double>(result.records); }

/// Returns the feeder's report as JSON. Adds the facts that only the tool knows: rates, the process's CPU time and
/// memory, and the error or signal that ended the run.
Json run_json(const RunArgs& args, const FeedResult& result, const RowCheck* rows) {
  const Report& report = result.report;
  Json json = report_json(report);
  json["rank"] = args.pipeline.rank;  // even if no feed was made
  json["world_size"] = args.pipeline.world_size;
  json["records"] = result.records;
  json["steps"] = result.steps;
  json["wall_s"] = result.wall_s;
  json["records_per_s"] = known(result.per_second(result.records));
  json["bytes_per_s"] = known(result.per_second(report.read_bytes));
  json["cpu_s"] = result.cpu_s;
  json["cpu_ns_per_record"] = result.records > 0 ? Json(cpu_ns_per_record(result)) : Json();
  json["rss_peak_bytes"] = result.rss_peak_bytes;
  if (args.how.replay)  // in a replay nobody waits for the feed
    json["verdict"] = json["next_wait_ratio"] = json["next_wait_share"] = Json();
  json["errors"] = errors_json(report, result.error);
  json["error"] = result.error ? error_json(*result.error) : Json();
  json["resumed"] = result.resumed.empty() ? Json() : Json::parse(result.resumed);
  json["interrupted"] = result.interrupted;
  if (rows) {
    const RowCheck::Result checked = rows->result();
    json["verified_rows"] = {{"output", rows->output()}, {"rows", checked.rows}, {"differing", checked.differing}};
  }
  return json;
}

void print_errors(const Report& report) {
  constexpr size_t most = 10;
  const size_t told = std::min(most, report.errors.size());
  for (size_t i = 0; i < told; i++) print_line("bad      {}", report.errors[i].what());
  if (report.bad_records > told)
    fmt::print("         and {} more; --json lists the first {}\n", format_count(report.bad_records - told),
               format_count(report.errors.size()));
}

/// Prints the verdict, the stages for which the trainer has waited, and how long calls of next() took.
void print_waits(const RunArgs& args, const FeedResult& result) {
  const Report& report = result.report;
  const bool real_trainer = args.how.step_ms > 0 && !args.how.replay;
  if (!args.how.replay) print_line("verdict  {}", report.verdict);
  if (real_trainer) {
    std::string waits;
    for (const auto& [stage, seconds] : report.waited_s)
      if (seconds >= 0.0005)
        waits += fmt::format("{} {} for {}", waits.empty() ? "" : ",", format_seconds(seconds), stage);
    if (!waits.empty())
      fmt::print("waits   {}{}\n", waits,
                 result.replicas > 1 ? fmt::format(" ({} replicas together)", result.replicas) : "");
  } else if (!args.how.replay) {
    fmt::print("trainer  none (--step-ms 0): the rate is the highest that the feed reaches\n");
  }
  fmt::print(
      "next()   p50 {:.1f} us, p99 {:.1f} us, max {:.1f} us{}\n", report.next_us.p50, report.next_us.p99,
      report.next_us.max,
      real_trainer ? fmt::format("; a batch was ready in {:.1f} % of calls", 100 * report.data_readiness_ratio) : "");
}

void print_stages(const Report& report) {
  fmt::print("\n{:12} {:>10} {:>10} {:>10}\n", "stage", "busy", "no room", "messages");
  for (const StageReport& stage : report.stages) {
    fmt::print("{:12} {:>10} {:>10} {:>10}\n", stage.name, format_seconds(stage.busy_s), format_seconds(stage.wait_s),
               format_count(stage.messages));
  }
  fmt::print(
      "\nbusy: time of all threads together in the stage. no room: how long the stage had work but no free memory,\n"
      "because later stages or the trainer had not yet used its results. messages: work items given to the stage.\n");
}

void print_run(const RunArgs& args, const FeedResult& result, const RowCheck* rows) {
  const Report& report = result.report;
  const auto records_per_s = result.per_second(result.records), bytes_per_s = result.per_second(report.read_bytes);
  fmt::print("{} in {}, {}{}: {}\n", format_count(result.records, "record"), format_count(result.steps, "step"),
             format_seconds(result.wall_s), result.interrupted ? ", then interrupted" : "",
             records_per_s ? fmt::format("{} records/s, {}/s of files", format_rate(*records_per_s),
                                         format_byte_size(static_cast<uint64_t>(*bytes_per_s)))
                           : "the run was too short to measure a rate");
  print_waits(args, result);
  const std::string of_record =
      result.records > 0 ? fmt::format(" ({:.3g} ns per record)", cpu_ns_per_record(result)) : std::string();
  fmt::print("process  {} of CPU time{}, at most {} of memory, first batch after {}, counting took {}\n",
             format_seconds(result.cpu_s), of_record, format_byte_size(result.rss_peak_bytes),
             format_seconds(report.first_batch_s), format_seconds(report.count_s));
  print_line("data     {} dropped, {}, {}, {}", format_count(report.dropped_samples, "sample"),
             format_count(report.filler_rows, "filler row"), format_count(report.bad_records, "bad record"),
             audit_text(report));
  print_errors(report);
  if (rows) {
    const RowCheck::Result checked = rows->result();
    print_line("rows     {} of output '{}' compared with rows that were fed one at a time, {} differ",
               format_count(checked.rows, "row"), rows->output(), format_count(checked.differing, "row"));
  }
  if (report.uploaded_bytes > 0) {
    double copying_s = 0;
    for (const StageReport& stage : report.stages)
      if (stage.name.starts_with("copy ")) copying_s += stage.busy_s;
    const auto bytes = static_cast<double>(report.uploaded_bytes + report.between_gpus_bytes);
    fmt::print("GPUs     {} copied from the host, {} copied between GPUs{}\n", format_byte_size(report.uploaded_bytes),
               format_byte_size(report.between_gpus_bytes),
               copying_s > 0 ? fmt::format(", at {:.1f} GB/s", bytes / copying_s * 1e-9) : "");
  }
  if (report.sent_bytes + report.received_bytes > 0)
    fmt::print("ranks    {}: {} sent, {} received\n", report.distribute_mode, format_byte_size(report.sent_bytes),
               format_byte_size(report.received_bytes));
  if (report.cache_share == 0.0)
    fmt::print("cache    off\n");
  else if (report.cache_share)
    fmt::print("cache    {} found in the cache, {} not found ({:.1f} % of the samples are cached); {} stored, {}\n",
               format_count(report.cache_hits, "row"), format_count(report.cache_misses), 100 * *report.cache_share,
               format_count(report.cache_entries, "piece"), format_byte_size(report.cache_bytes));
  for (const auto& [name, made] : report.outputs) print_line("where    {:<24} {}", name, made);
  fmt::print("reads    {}\n", report.backend);
  print_stages(report);
}

int run_pipeline(const RunArgs& args) {
  if (!args.monitor.empty()) try {
      parse_http_address("--monitor", args.monitor);
    } catch (const Error& error) {
      throw UsageError(error.message());
    }
  const Pipeline pipeline = load(args.pipeline);
  Options options = feeder_options(args.pipeline);
  options.io = args.io;
  const std::shared_ptr<Transport> ranks = options.communicator;
  std::optional<RowCheck> rows;
  FeedOptions how = args.how;
  if (args.verify_rows) {
    if (options.devices.front().kind == DeviceId::Kind::cuda)
      throw UsageError("--verify-rows can only compare rows on the host; leave out --devices, or use --devices host:N");
    telling(ranks, [&] { how.rows = &rows.emplace(pipeline); });
  }
  std::optional<TraceFile> trace;
  options.monitor = args.monitor;
  // A password on the command line would be seen by every user of the machine.
  if (const char* token = std::getenv("FEEDLINE_MONITOR_TOKEN")) options.monitor_token = token;
  FeedResult result;
  try {
    const auto given = [](const char* flag, uint64_t number) {
      return number == 0 ? fmt::format("no {}", flag) : fmt::format("{} {}", flag, number);
    };
    compare_flags(options, {"the command run", given("--epochs", how.epochs), given("--steps", how.steps),
                            given("--replay", how.replay), args.trace.empty() ? "no --trace" : "--trace",
                            telling(ranks, [&] { return state_at(how.state); })});
    const Interrupt interrupt;
    result = telling(ranks, [&] {
      if (!args.trace.empty()) trace.emplace(args.trace, args.pipeline.rank);
      return feed(rows ? rows->pipeline() : pipeline, std::move(options), how);
    });
    if (!result.resumed.empty())
      print_error("the run continued at {}, the position in {}", state_in_words(result.resumed), args.how.state);
  } catch (const Error& error) {
    result.interrupted = Interrupt::happened();
    if (!result.interrupted) result.error = error;
  }
  // A rank that has not reached the end sends no trace. The other ranks exchange their audits first, and would take the
  // trace for this rank's audit.
  if (trace) try {
      trace->write(result.error || result.interrupted ? nullptr : ranks);
    } catch (const Error& error) {  // the report must not be lost with the trace
      if (result.error)
        print_error("{}", error.what());
      else
        result.error = error;
    }
  if (args.json) {
    print_document(run_json(args, result, how.rows));
  } else if (result.steps > 0 || !result.error) {
    print_run(args, result, how.rows);
  }
  if (result.error) print_error("{}", result.error->what());
  const auto differs = audit_failure(result.report), wrong = rows ? rows->result().first : std::nullopt;
  if (differs) print_error("{}", *differs);
  if (wrong) print_error("{}", *wrong);
  return result.error || differs || wrong ? 1 : 0;
}

}  // namespace

void add_run(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "run",
                  "feed a pipeline's batches to a simulated trainer, and report rates and waiting times", run_pipeline);
  add_pipeline_args(command, args.pipeline);
  add_device_args(command, args.pipeline);
  add_rank_args(command, args.pipeline);
  add_number(command, "--epochs N", args.how.epochs, whole_number(1), "number of epochs to feed (default: 1)");
  add_number(command, "--steps N", args.how.steps, whole_number(1), "stop after N steps (default: feed whole epochs)");
  add_number(
      command, "--step-ms T", args.how.step_ms, milliseconds(),
      "milliseconds for which the simulated trainer keeps each batch (default: 0, which measures only the feed)");
  CLI::Option* const replay =
      add_number(command, "--replay N", args.how.replay, whole_number(1),
                 "take N batches, then repeat them and feed nothing more: shows the rate of a trainer that never waits "
                 "for data (default: off)");
  CLI::Option* const state = add_option(
      command, "--state FILE", args.how.state,
      "store the position of the run in FILE; if FILE exists, continue at that position; --epochs also counts "
      "the epochs before it");
  add_number(command, "--state-every T", args.how.state_every_ms, milliseconds(),
             "milliseconds between two writes of the state file (default: 1000)")
      ->needs(state);
  command
      .add_flag("--accept-changes", args.how.accept_changes,
                "continue at the step in the state file even if the data or the pipeline has changed since then")
      ->needs(state);
  replay->excludes(state);
  add_choice<BackendKind>(
      command, "--io", args.io.backend,
      {{"auto", BackendKind::automatic}, {"uring", BackendKind::uring}, {"pread", BackendKind::pread}},
      "how files are read: auto, uring or pread (default: auto)")
      ->option_text("HOW");
  add_choice<Toggle>(command, "--direct", args.io.direct,
                     {{"auto", Toggle::automatic}, {"on", Toggle::on}, {"off", Toggle::off}},
                     "whether files are read with O_DIRECT, which bypasses the page cache: auto, on or off (default: "
                     "auto)")
      ->option_text("HOW");
  add_option(command, "--trace FILE", args.trace,
             "write to FILE a trace of what each thread did and when, for Perfetto or chrome://tracing; with "
             "--meet, rank 0 writes one trace of all ranks (default: no trace)");
  add_option(command, "--monitor ADDRESS", args.monitor,
             "serve a page, the report as JSON, and metrics of the run over HTTP at this address, such as "
             "127.0.0.1:9400 or unix:/run/feed.sock; the environment variable FEEDLINE_MONITOR_TOKEN holds the "
             "password (default: no monitor)");
  command
      .add_flag(
          "--verify-rows", args.verify_rows,
          "compare each row of the first dense output with the row that the same record gives when records are fed one "
          "at a time; this feeds all records once more, before the run")
      ->excludes(replay);
  command.add_flag("--json", args.json, "print the report as JSON");
}

}  // namespace feedline::tool
