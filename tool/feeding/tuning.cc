#include "tool/feeding/tuning.h"

#include <algorithm>
#include <utility>

#include "feedline/error.h"

namespace feedline::tool {
namespace {

// A setting is not worth a gain that is smaller than these.
constexpr double least_gain = 0.01, least_wait_share = 0.005;

Choices with(Choices choices, const Choice& choice) {
  std::erase_if(choices, [&](const Choice& other) { return other.setting == choice.setting; });
  choices.push_back(choice);
  return choices;
}

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], (values.back() - values.front()) / 2};
}

bool clearly_below(const Spread& ratio) { return ratio.median + ratio.noise < 1 && ratio.median <= 1 - least_gain; }

constexpr size_t runs_of_comparison = 2 * compared_pairs, runs_of_trial = 1 + runs_of_comparison;

class Search {
 public:
  explicit Search(const Tuning& tuning) : tuning_(tuning), runs_most_(most_runs(tuning.settings)) {}

  Tuned run() {
    std::string plan = tuning_.plan({});
    try {
      tuned_.as_it_is = measure({});
      for (const Setting& setting : tuning_.settings)
        for (const std::string& value : setting.values) try_choice({setting.name, value}, plan);
      if (!tuned_.best.empty()) {
        tuned_.gain = compare(tuned_.best, {});
        if (!is_better(*tuned_.gain, tuning_.beside_trainer)) tuned_.best.clear();
      }
    } catch (const Stopped&) {
      tuned_.stopped = true;
    }
    return std::move(tuned_);
  }

 private:
  /// Tries a choice together with the best choices so far. `plan` is the plan of the best choices; it is replaced if
  /// the choice becomes one of them.
  void try_choice(const Choice& choice, std::string& plan) {
    const Choices changed = with(tuned_.best, choice);
    Trial trial{.choice = choice};
    std::string changed_plan;
    const size_t runs_before = runs_done_;
    try {
      changed_plan = tuning_.plan(changed);
      if (changed_plan == plan)
        trial.verdict = Trial::Verdict::same_plan;
      else if (!tuning_.time_left())
        trial.verdict = Trial::Verdict::no_time;
      else
        measure(changed);  // the figures are not used: this run brings the files into the page cache
    } catch (const Error& error) {
      trial.why = error.what();
      changed_plan = plan;
    }
    if (changed_plan != plan && trial.verdict != Trial::Verdict::no_time) {
      trial.comparison = compare(changed, tuned_.best);
      bool better = is_better(*trial.comparison, tuning_.beside_trainer);
      if (better) {
        trial.comparison = compare(changed, tuned_.best);
        better = is_better(*trial.comparison, tuning_.beside_trainer);
      }
      trial.verdict = better ? Trial::Verdict::better : Trial::Verdict::not_better;
      if (better) {
        tuned_.best = changed;
        plan = changed_plan;
      }
    } else {
      runs_most_ -= runs_of_trial - (runs_done_ - runs_before);
    }
    tuned_.trials.push_back(std::move(trial));
  }

  Comparison compare(const Choices& changed, const Choices& before) {
    std::vector<double> rates, waits, cpu;
    for (size_t i = 0; i < compared_pairs; i++) {
      // Runs with the change and runs without it take turns at coming first. So a time in which the machine is slower
      // favours neither.
      const bool changed_first = i % 2 == 0;
      const Measured first = measure(changed_first ? changed : before),
                     second = measure(changed_first ? before : changed);
      const Measured &with = changed_first ? first : second, &without = changed_first ? second : first;
      rates.push_back(with.records_per_s / without.records_per_s);
      waits.push_back(with.wait_share - without.wait_share);
      cpu.push_back(with.cpu_ns_per_record / without.cpu_ns_per_record);
    }
    return {spread_of(std::move(rates)), spread_of(std::move(waits)), spread_of(std::move(cpu))};
  }

  Measured measure(const Choices& choices) {
    tuning_.on_run(runs_done_, std::max(runs_most_, runs_done_ + 1));
    runs_done_++;
    return tuning_.measure(choices);
  }

  const Tuning& tuning_;
  size_t runs_done_ = 0, runs_most_;
  Tuned tuned_;
};

}  // namespace

std::string Choice::arguments() const {
  return setting.starts_with("--") ? setting + " " + value : "--set " + setting + "=" + value;
}

size_t most_runs(const std::vector<Setting>& settings) {
  size_t runs = 1 + runs_of_comparison;  // the unchanged pipeline, and the last comparison
  for (const Setting& setting : settings) runs += setting.values.size() * runs_of_trial + runs_of_comparison;
  return runs;
}

bool is_better(const Comparison& comparison, bool beside_trainer) {
  const auto& [rate, waits, cpu] = comparison;
  if (!beside_trainer) return rate.median - rate.noise > 1 && rate.median >= 1 + least_gain;
  if (waits.median + waits.noise < 0 && waits.median <= -least_wait_share) return true;
  return waits.median <= least_wait_share && clearly_below(cpu);
}

Tuned tune(const Tuning& tuning) { return Search(tuning).run(); }

}  // namespace feedline::tool
