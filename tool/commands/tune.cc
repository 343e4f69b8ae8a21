// feedline tune: tries settings of a pipeline in short runs, one after another, and prints those that feed it best.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/machine.h"
#include "tool/commands/commands.h"
#include "tool/commands/flags.h"
#include "tool/commands/pipeline_flags.h"
#include "tool/common/interrupt.h"
#include "tool/common/json.h"
#include "tool/common/terminal.h"
#include "tool/feeding/feed.h"
#include "tool/feeding/pipeline_args.h"
#include "tool/feeding/tuning.h"

namespace feedline::tool {
namespace {

struct TuneArgs {
  PipelineArgs pipeline;
  double step_ms = 0;
  uint64_t seconds = 60;
  bool change_order = false;
  bool json = false;
};

/// A pipeline and the options of its feeder, with changed settings.
struct Fed {
  Pipeline pipeline;
  Options options;
};

/// Makes runs of the pipeline with changed settings. All runs feed the same steps.
class Runs {
 public:
  explicit Runs(const TuneArgs& args) : args_(args), pipeline_(load(args.pipeline)) {}

  /// Returns the text of the plan, without the line that says how long counting took. Puts choices that no plan shows,
  /// such as --direct, before the text.
  std::string plan(const Choices& choices) const {
    Fed fed = changed(choices);
    fed.options.plan_only = true;
    const std::string text = stoppable([&] { return Feeder(fed.pipeline, std::move(fed.options)).plan_text(); });
    std::string flags;
    for (const Choice& choice : choices)
      if (choice.setting.starts_with("--")) flags += choice.arguments() + "\n";
    return flags + text.substr(std::min(text.find('\n'), text.size()));
  }

  /// Feeds once, and returns in words how the files were read: by io_uring or pread, from the page cache or not.
  std::string backend() const { return feed_once({}).report.backend; }

  /// Finds out how many steps take about `seconds` seconds, by runs that become longer.
  void choose_steps(double seconds) {
    double share = 0;
    do {
      share = feed_once({}).wall_s / seconds;
      // A run of few steps tells little about its rate, so the number grows by a hundredfold at most.
      steps_ = std::max(fewest_steps, static_cast<uint64_t>(static_cast<double>(steps_) / std::max(share, 0.01)));
    } while (share < 0.3);
  }

  Measured measure(const Choices& choices) const {
    const FeedResult result = feed_once(choices);
    const auto records = static_cast<double>(std::max<uint64_t>(1, result.records));
    const double wall_s = std::max(result.wall_s, 1e-9);
    return {.records_per_s = records / wall_s,
            .wait_share = std::clamp(result.next_wait_s / (wall_s * result.replicas), 0.0, 1.0),
            .cpu_ns_per_record = std::max(result.cpu_s, 1e-6) * 1e9 / records};
  }

  uint64_t steps() const { return steps_; }

 private:
  static constexpr uint64_t fewest_steps = 4;

  /// The number of steps before the clock starts, so that batches that were made ahead do not count.
  uint64_t warm_up() const { return 1 + steps_ / 4; }

  Fed changed(const Choices& choices) const {
    Fed fed{pipeline_, feeder_options(args_.pipeline)};
    for (const auto& [setting, value] : choices) {
      if (setting == "--direct")
        fed.options.io.direct = Toggle::on;
      else if (setting == "--io")
        fed.options.io.backend = value == "pread" ? BackendKind::pread : BackendKind::uring;
      else
        fed.pipeline = fed.pipeline.with(setting, value);
    }
    return fed;
  }

  FeedResult feed_once(const Choices& choices) const {
    Fed fed = changed(choices);
    const uint64_t steps = warm_up() + steps_;
    const FeedOptions how{.epochs = steps,  // enough, because each epoch has at least one step
                          .steps = steps,
                          .warm_up_steps = warm_up(),
                          .step_ms = args_.step_ms,
                          .quiet = true};
    FeedResult result = stoppable([&] { return feed(fed.pipeline, std::move(fed.options), how); });
    if (result.interrupted) throw Stopped();
    if (result.error) throw *result.error;
    if (result.steps < steps)
      throw Error(Category::bad_pipeline,
                  "the epochs have too few steps to compare settings; use more data or a smaller batch");
    return result;
  }

  /// Calls `work`, and throws Stopped if it ends because of a signal.
  template <typename Work>
  static auto stoppable(Work work) -> decltype(work()) {
    try {
      return work();
    } catch (const Error&) {
      if (Interrupt::happened()) throw Stopped();
      throw;
    }
  }

  const TuneArgs& args_;
  const Pipeline pipeline_;
  uint64_t steps_ = fewest_steps;
};

/// Returns the settings to try. `plan` is the plan of the pipeline as it is; `backend` says what reads its files.
std::vector<Setting> settings(const TuneArgs& args, const std::string& plan, const std::string& backend) {
  std::vector<Setting> all;
  const unsigned cpus = usable_cpus();
  Setting threads{"parallelism.threads", {}};
  for (const unsigned count : {1u, cpus / 4, cpus / 2, cpus - 1, cpus}) {
    const std::string value = std::to_string(count);
    if (count > 0 && std::find(threads.values.begin(), threads.values.end(), value) == threads.values.end())
      threads.values.push_back(value);
  }
  all.push_back(std::move(threads));
  all.push_back({"parallelism.host_prefetch", {"1", "2", "4", "8", "16", "32"}});
  if (plan.find(" lanes that mix ") != std::string::npos && args.change_order)
    all.push_back({"shuffle.block_size", {"64KiB", "128KiB", "256KiB", "512KiB", "1MiB"}});
  // Only the change from the page cache to O_DIRECT is tried, not the change back: short runs find data in the page
  // cache that whole epochs would not find there.
  if (backend.find("page cache") != std::string::npos) all.push_back({"--direct", {"on"}});
  if (backend.starts_with("io_uring"))
    all.push_back({"--io", {"pread"}});
  else if (backend.starts_with("pread"))
    all.push_back({"--io", {"uring"}});
  return all;
}

std::string best_arguments(const Tuned& tuned) {
  std::string text;
  for (const Choice& choice : tuned.best) text += (text.empty() ? "" : " ") + choice.arguments();
  return text;
}

std::string verdict_text(const Trial& trial) {
  switch (trial.verdict) {
    case Trial::Verdict::better:
      return "better";
    case Trial::Verdict::not_better:
      return "not better";
    case Trial::Verdict::same_plan:
      return "same plan";
    case Trial::Verdict::refused:
      return "refused";
    case Trial::Verdict::no_time:
      return "no time";
  }
  return "";
}

std::string number_text(const Spread& spread) { return fmt::format("{:.3f} +- {:.3f}", spread.median, spread.noise); }

std::string points_text(const Spread& share) {
  return fmt::format("{:+.1f} +- {:.1f} %", 100 * share.median, 100 * share.noise);
}

void print_for_people(const TuneArgs& args, const Tuned& tuned, uint64_t steps) {
  const bool trainer = args.step_ms > 0;
  const Measured& now = tuned.as_it_is;
  if (now.records_per_s > 0)
    fmt::print("unchanged pipeline: {} records/s, {:.3g} ns of CPU time per record{}; each run has {}\n",
               format_rate(now.records_per_s), now.cpu_ns_per_record,
               trainer ? fmt::format(", waiting {:.1f} % of the time", 100 * now.wait_share) : "",
               format_count(steps, "step"));
  if (tuned.trials.empty()) {
    fmt::print("interrupted before anything was compared\n");
    return;
  }
  fmt::print("\n{:<38} {:>16} {:>16} {:>16}\n", "tried", "records/s", "CPU per record", "waiting");
  for (const Trial& trial : tuned.trials) {
    const auto& compared = trial.comparison;
    fmt::print("{:<38} {:>16} {:>16} {:>16}  {}{}\n", trial.choice.arguments(),
               compared ? number_text(compared->rate) : "-", compared ? number_text(compared->cpu) : "-",
               compared && trainer ? points_text(compared->waits) : "-", verdict_text(trial),
               trial.why.empty() ? "" : ": " + trial.why);
  }
  fmt::print("\nEach setting is compared with the best before it: median of {} pairs of runs +- half of their range.\n",
             compared_pairs);
  if (tuned.best.empty()) {
    fmt::print("{}\n", tuned.stopped ? "interrupted: nothing that was tried so far is better"
                                     : "nothing that was tried is better");
    return;
  }
  fmt::print("best: {}\n", best_arguments(tuned));
  if (tuned.gain)
    fmt::print("gain: {} times the records/s, {} times the CPU time per record{}\n", number_text(tuned.gain->rate),
               number_text(tuned.gain->cpu), trainer ? ", waiting " + points_text(tuned.gain->waits) : "");
  else
    fmt::print("interrupted: these settings together have not been compared with the unchanged pipeline\n");
}

Json to_json(const Spread& spread) { return {{"median", spread.median}, {"noise", spread.noise}}; }

Json to_json(const std::optional<Comparison>& compared) {
  if (!compared) return {};
  return {{"records_per_s", to_json(compared->rate)},
          {"cpu_ns_per_record", to_json(compared->cpu)},
          {"next_wait_ratio", to_json(compared->waits)},
          {"next_wait_share", to_json(compared->waits)}};  // its name before version 0.2
}

Json to_json(const Choice& choice) {
  return {{"setting", choice.setting}, {"value", choice.value}, {"arguments", choice.arguments()}};
}

Json to_json(const TuneArgs& args, const Tuned& tuned, uint64_t steps) {
  Json tried = Json::array(), best = Json::array();
  for (const Trial& trial : tuned.trials) {
    Json json = to_json(trial.choice);
    json["verdict"] = verdict_text(trial);
    json["why"] = trial.why.empty() ? Json() : Json(trial.why);
    json["compared"] = to_json(trial.comparison);
    tried.push_back(std::move(json));
  }
  for (const Choice& choice : tuned.best) best.push_back(to_json(choice));
  const Measured& now = tuned.as_it_is;
  Json as_it_is;  // null: interrupted before it was measured
  if (now.records_per_s > 0)
    as_it_is = {{"records_per_s", now.records_per_s},
                {"cpu_ns_per_record", now.cpu_ns_per_record},
                {"next_wait_ratio", now.wait_share},
                {"next_wait_share", now.wait_share}};
  return {{"step_ms", args.step_ms},     {"steps", steps},          {"as_it_is", std::move(as_it_is)},
          {"tried", std::move(tried)},   {"best", std::move(best)}, {"gain", to_json(tuned.gain)},
          {"interrupted", tuned.stopped}};
}

int tune_pipeline(const TuneArgs& args) {
  const Interrupt interrupt;
  Runs runs(args);
  Tuned tuned;
  try {
    const auto start = LiveLine::Clock::now();
    const std::string plan = runs.plan({});
    Tuning tuning{.settings = settings(args, plan, runs.backend()),
                  .beside_trainer = args.step_ms > 0,
                  .plan = [&](const Choices& choices) { return runs.plan(choices); },
                  .measure = [&](const Choices& choices) { return runs.measure(choices); }};
    Progress progress("tuning", 0, "run");
    tuning.on_run = [&](size_t done, size_t most) {
      if (done > 0) progress.set(done, most);
    };
    tuning.time_left = [&] { return LiveLine::Clock::now() - start < std::chrono::seconds(args.seconds); };
    // Of `seconds`, a third is for warming up and for making the feeders. All runs share the remaining two thirds.
    runs.choose_steps(static_cast<double>(args.seconds) / 1.5 / static_cast<double>(most_runs(tuning.settings)));
    tuned = tune(tuning);
  } catch (const Stopped&) {  // before anything was compared
    tuned.stopped = true;
  }
  if (args.json)
    print_document(to_json(args, tuned, runs.steps()));
  else
    print_for_people(args, tuned, runs.steps());
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Run& run) {
  const auto [command, args] =
      add_command(app, run, "tune",
                  "try settings of a pipeline in short runs, one after another; print the settings that feed it best",
                  tune_pipeline);
  add_pipeline_args(command, args.pipeline);
  add_number(command, "--step-ms T", args.step_ms, milliseconds(),
             "milliseconds for which the simulated trainer keeps each batch; the goal is then less waiting, and "
             "after that less CPU time (default: 0; the goal is more records per second)");
  add_number(command, "--seconds N", args.seconds, whole_number(1, 86400),
             "about how many seconds all runs may take; longer runs show smaller differences (default: 60)");
  command.add_flag("--change-order", args.change_order,
                   "also try shuffle.block_size, which changes the order of the records");
  command.add_flag("--json", args.json, "print the result as JSON");
  command.footer(
      "Settings that change the order of the records are tried only with --change-order. Settings that need more\n"
      "memory than memory.limit are not run. All runs repeat the same steps, so their files are in the page cache as\n"
      "far as they fit.");
}

}  // namespace feedline::tool
