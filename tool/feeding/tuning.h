// Looks for the settings that feed a pipeline best. The search changes one setting at a time, and compares short runs
// with the change and without it. The functions that plan and measure are arguments, so that tests need no clock.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace feedline::tool {

/// A setting with a value.
struct Choice {
  std::string setting;  // a path in the pipeline, or a flag of `feedline run` that begins with "--"
  std::string value;

  /// Returns the arguments for the command line: "--set parallelism.threads=2", or "--direct on".
  std::string arguments() const;
  bool operator==(const Choice&) const = default;
};
/// At most one value for each setting. All other settings are as the user has them.
using Choices = std::vector<Choice>;

/// A setting with the values to try.
struct Setting {
  std::string name;
  std::vector<std::string> values;
};

/// The figures that one run gave.
struct Measured {
  double records_per_s = 0;
  double wait_share = 0;  // the share of the replicas' time that next() waited, 0 to 1
  double cpu_ns_per_record = 0;
};

/// A figure of several pairs of runs: the median, and half of the distance from the smallest to the largest.
struct Spread {
  double median = 0, noise = 0;
};

/// The result of comparing two groups of runs: with a change of one setting or several, and without it.
struct Comparison {
  Spread rate;   // records per second with the change / without it
  Spread waits;  // Measured::wait_share with the change - without it
  Spread cpu;    // CPU time per record with the change / without it
};

/// What happened to a value that was to be tried.
struct Trial {
  enum class Verdict { better, not_better, same_plan, refused, no_time };
  Choice choice;
  Verdict verdict = Verdict::refused;
  std::string why = {};                       // for `refused`: the error
  std::optional<Comparison> comparison = {};  // for `better` and `not_better`
};

struct Tuned {
  Measured as_it_is;  // the pipeline without a change
  std::vector<Trial> trials;
  Choices best;                    // the changes that made the feed better; empty: no change did
  std::optional<Comparison> gain;  // all of `best`, compared with the unchanged pipeline
  bool stopped = false;            // plan() or measure() has thrown Stopped; `gain` is not known
};

/// What plan() or measure() throws to end the search early. tune() passes it on if the first plan() throws it.
struct Stopped {};

struct Tuning {
  std::vector<Setting> settings;
  // false: more records per second are better. true: less waiting is better and, if the waiting is equal, less CPU time
  // is better.
  bool beside_trainer = false;
  /// Returns the plan with these choices as text. Equal plans have equal texts. Throws Error if the plan is refused.
  std::function<std::string(const Choices&)> plan;
  /// Runs the feed with these choices and returns what was measured. Throws Error if that fails.
  std::function<Measured(const Choices&)> measure;
  /// Called before each run with the number of runs that are done and the maximum number of runs.
  std::function<void(size_t done, size_t most)> on_run = [](size_t, size_t) {};
  /// Returns whether there is time to try another value. If not, no further value is tried, and the best choices are
  /// compared with the unchanged pipeline.
  std::function<bool()> time_left = [] { return true; };
};

/// Pairs of runs in a comparison.
inline constexpr size_t compared_pairs = 5;

/// Returns how many runs a search makes at most, if it makes the second comparison for at most one value of each
/// setting. (A search makes more runs if it makes more second comparisons.)
size_t most_runs(const std::vector<Setting>& settings);

/// Returns whether the change is better by more than the noise; Tuning::beside_trainer says what is better. More
/// records per second and less CPU time count from 1 % on. Less waiting counts from 0.5 % of the time on.
bool is_better(const Comparison& comparison, bool beside_trainer);

/// Tries each value of each setting, one after another. A value stays if two comparisons in a row say that it is
/// better. In the end all values that stayed are compared with the unchanged pipeline; if they are not better, `best`
/// is empty. Throws the Error of plan() or measure(). But a change whose plan or first run fails is only `refused`.
Tuned tune(const Tuning& tuning);

}  // namespace feedline::tool
