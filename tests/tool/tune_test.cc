// feedline tune: the search, with runs that are made up, and the command.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "feedline/error.h"
#include "pipelines.h"
#include "support/catch.h"
#include "tool/feeding/tuning.h"

using namespace feedline;
using namespace feedline::tool;
using namespace feedline::test;

namespace {

std::string text_of(const Choices& choices) {
  std::string text;
  for (const Choice& choice : choices) text += choice.arguments() + " ";
  return text;
}

// Returns what of a setting is chosen, or "" if nothing is.
std::string value_of(const Choices& choices, const std::string& setting) {
  for (const Choice& choice : choices)
    if (choice.setting == setting) return choice.value;
  return "";
}

// A machine whose runs differ by some parts in a hundred, always in the same way.
struct Machine {
  double noise = 0.03;
  std::function<Measured(const Choices&)> truth;
  size_t runs = 0;

  Measured operator()(const Choices& choices) {
    constexpr double pattern[] = {0.3, -1, 0.9, 0.1, -0.4, 1, -0.7};
    const double factor = 1 + noise * pattern[runs++ % 7];
    Measured run = truth(choices);
    run.records_per_s *= factor;
    run.cpu_ns_per_record /= factor;
    return run;
  }
};

Tuning tuning_of(std::vector<Setting> settings, Machine& machine, bool beside_trainer = false) {
  return {.settings = std::move(settings),
          .beside_trainer = beside_trainer,
          .plan = text_of,
          .measure = [&machine](const Choices& choices) { return machine(choices); }};
}

}  // namespace

TEST_CASE("the search keeps what is better by more than the noise, one setting after another") {
  Machine machine{.truth = [](const Choices& choices) {
    const std::map<std::string, double> threads = {{"", 1}, {"1", 0.5}, {"4", 1.3}, {"8", 1.3}};
    return Measured{
        1000 * threads.at(value_of(choices, "parallelism.threads")) * (value_of(choices, "--direct") == "on" ? 1.2 : 1),
        1, 100};
  }};
  const Tuned tuned = tune(tuning_of({{"parallelism.threads", {"1", "4", "8"}}, {"--direct", {"on"}}}, machine));
  CHECK(tuned.best == Choices{{"parallelism.threads", "4"}, {"--direct", "on"}});
  CHECK(text_of(tuned.best) == "--set parallelism.threads=4 --direct on ");
  REQUIRE(tuned.trials.size() == 4);
  using enum Trial::Verdict;
  CHECK(tuned.trials[0].verdict == not_better);
  CHECK(tuned.trials[1].verdict == better);
  CHECK(tuned.trials[2].verdict == not_better);  // compared with 4 threads
  CHECK(tuned.trials[3].verdict == better);
  REQUIRE(tuned.gain);
  CHECK(tuned.gain->rate.median > 1.4);
  CHECK(tuned.gain->rate.median < 1.7);
  CHECK(tuned.gain->rate.noise > 0);
  CHECK(tuned.gain->rate.noise < 0.1);
  CHECK(machine.runs <= most_runs({{"", {"1", "4", "8"}}, {"", {"on"}}}));
}

TEST_CASE("settings that change nothing are never recommended, whatever the noise") {
  for (const double noise : {0.0, 0.02, 0.1, 0.5})
    for (const bool beside_trainer : {false, true}) {
      Machine machine{.noise = noise, .truth = [](const Choices&) { return Measured{1000, 0.1, 100}; }};
      const Tuned tuned =
          tune(tuning_of({{"a", {"1", "2", "3"}}, {"b", {"1", "2", "3", "4"}}}, machine, beside_trainer));
      INFO(noise);
      CHECK(tuned.best.empty());
      CHECK_FALSE(tuned.gain);
      CHECK(tuned.trials.size() == 7);
    }
}

TEST_CASE("what looked better by chance is given up if the last comparison does not confirm it") {
  size_t runs = 0;
  const Tuned tuned = tune({.settings = {{"a", {"1"}}}, .plan = text_of, .measure = [&](const Choices& choices) {
                              // One run as it is, one warm run, and two comparisons; what comes after is as before.
                              const bool lucky = runs++ < 2 + 4 * compared_pairs;
                              return Measured{lucky && !choices.empty() ? 1500.0 : 1000.0, 1, 100};
                            }});
  CHECK(tuned.trials.at(0).verdict == Trial::Verdict::better);
  CHECK(tuned.best.empty());
  REQUIRE(tuned.gain);
  CHECK(tuned.gain->rate.median == 1);
}

TEST_CASE("beside a trainer less waiting is better, and with as little waiting less CPU time") {
  const auto compared = [](double waits, double cpu) {
    return Comparison{.rate = {1, 0}, .waits = {waits, 0.01}, .cpu = {cpu, 0.05}};
  };
  CHECK(is_better(compared(-0.02, 2), true));
  CHECK_FALSE(is_better(compared(-0.005, 1), true));  // within the noise
  CHECK(is_better(compared(0, 0.9), true));
  CHECK_FALSE(is_better(compared(0, 0.96), true));    // within the noise
  CHECK_FALSE(is_better(compared(0.02, 0.5), true));  // cheaper, but the trainer waits longer
  CHECK_FALSE(is_better({.rate = {1.005, 0}, .waits = {0, 0}, .cpu = {1, 0}}, false));
  CHECK(is_better({.rate = {1.02, 0.01}, .waits = {0, 0}, .cpu = {1, 0}}, false));

  Machine machine{.truth = [](const Choices& choices) {
    const std::string prefetch = value_of(choices, "parallelism.host_prefetch");
    return Measured{1000, prefetch == "1" ? 0.3 : 0.001, prefetch == "16" ? 50.0 : 100.0};
  }};
  CHECK(tune(tuning_of({{"parallelism.host_prefetch", {"1", "8", "16"}}}, machine, true)).best ==
        Choices{{"parallelism.host_prefetch", "16"}});
}

TEST_CASE("plans that are refused or the same are not run, and feeds that fail are left out") {
  std::vector<std::string> ran;
  const Tuned tuned = tune({.settings = {{"a", {"refused", "same", "fails", "slow"}}},
                            .plan =
                                [](const Choices& choices) {
                                  const std::string value = value_of(choices, "a");
                                  if (value == "refused") throw Error(Category::bad_pipeline, "too much memory");
                                  return value == "same" ? "" : value;
                                },
                            .measure =
                                [&](const Choices& choices) {
                                  ran.push_back(value_of(choices, "a"));
                                  if (ran.back() == "fails") throw Error(Category::io_error, "no O_DIRECT here");
                                  return Measured{ran.back() == "slow" ? 500.0 : 1000.0, 1, 100};
                                }});
  using enum Trial::Verdict;
  REQUIRE(tuned.trials.size() == 4);
  CHECK(tuned.trials[0].verdict == refused);
  CHECK(tuned.trials[0].why == "too much memory [bad_pipeline]");
  CHECK(tuned.trials[1].verdict == same_plan);
  CHECK(tuned.trials[2].verdict == refused);
  CHECK(tuned.trials[2].why == "no O_DIRECT here [io_error]");
  CHECK(tuned.trials[3].verdict == not_better);
  CHECK(std::count(ran.begin(), ran.end(), "refused") == 0);
  CHECK(std::count(ran.begin(), ran.end(), "same") == 0);
  CHECK(std::count(ran.begin(), ran.end(), "fails") == 1);
  CHECK(tuned.best.empty());

  // The pipeline itself must be good.
  const Tuning bad{.settings = {},
                   .plan = [](const Choices&) -> std::string { throw Error(Category::bad_pipeline, "bad"); },
                   .measure =
                       [](const Choices&) {
                         return Measured{1, 1, 1};
                       }};
  CHECK_THROWS_AS(tune(bad), Error);
}

TEST_CASE("without time no more values are run, but what is best so far is compared") {
  const Tuned tuned = tune({.settings = {{"a", {"fast", "faster", "refused"}}},
                            .plan =
                                [](const Choices& choices) {
                                  if (value_of(choices, "a") == "refused")
                                    throw Error(Category::bad_pipeline, "too much");
                                  return text_of(choices);
                                },
                            .measure =
                                [](const Choices& choices) {
                                  return Measured{value_of(choices, "a") == "fast" ? 2000.0 : 1000.0, 1, 100};
                                },
                            .time_left = [first = true]() mutable { return std::exchange(first, false); }});
  using enum Trial::Verdict;
  REQUIRE(tuned.trials.size() == 3);
  CHECK(tuned.trials[0].verdict == better);
  CHECK(tuned.trials[1].verdict == no_time);
  CHECK_FALSE(tuned.trials[1].comparison);
  CHECK(tuned.trials[2].verdict == refused);
  CHECK(tuned.best == Choices{{"a", "fast"}});
  CHECK(tuned.gain);
}

TEST_CASE("a search that is stopped tells what it knows") {
  size_t runs = 0;
  const Tuned tuned =
      tune({.settings = {{"a", {"fast", "other"}}}, .plan = text_of, .measure = [&](const Choices& choices) {
              if (value_of(choices, "a") == "other" && runs++ == 3) throw Stopped();
              return Measured{value_of(choices, "a") == "fast" ? 2000.0 : 1000.0, 1, 100};
            }});
  CHECK(tuned.stopped);
  CHECK(tuned.as_it_is.records_per_s == 1000);
  CHECK(tuned.best == Choices{{"a", "fast"}});
  CHECK_FALSE(tuned.gain);
  CHECK(tuned.trials.size() == 1);
}

TEST_CASE("the command tries what the pipeline allows, and prints it for people and as JSON") {
  const TempDir dir;
  // The limit leaves room for some batches, not for 33.
  const std::string pipeline =
      dir.write("p.textproto", chess_pipeline("global_batch_size: 512") + "\nmemory { limit: \"24MiB\" }");
  const ToolResult result = run_tool({"tune", pipeline, "--seconds", "1", "--json"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto json = result.json();
  CHECK(json.at("steps") >= 4);
  CHECK(json.at("as_it_is").at("records_per_s") > 0);
  CHECK(json.at("interrupted") == false);
  std::map<std::string, std::string> verdicts, why;
  for (const auto& trial : json.at("tried")) {
    const std::string arguments = trial.at("arguments");
    verdicts[arguments] = trial.at("verdict");
    if (trial.at("why").is_string()) why[arguments] = trial.at("why");
    const std::string verdict = trial.at("verdict");
    CHECK(trial.at("compared").is_null() == (verdict != "better" && verdict != "not better"));
  }
  CHECK(verdicts.contains("--set parallelism.threads=1"));
  CHECK(verdicts.at("--set parallelism.host_prefetch=32") == "refused");
  CHECK(why.at("--set parallelism.host_prefetch=32").find("memory.limit") != std::string::npos);
  CHECK(verdicts.count("--set shuffle.block_size=64KiB") == 0);
  for (const auto& choice : json.at("best")) CHECK(verdicts.at(choice.at("arguments")) == "better");

  // What the pipeline has already is not run.
  const ToolResult people =
      run_tool({"tune", pipeline, "--seconds", "1", "--step-ms", "0.1", "--set", "parallelism.threads=1"});
  INFO(people.err);
  CHECK(people.code == 0);
  const size_t line = people.out.find("--set parallelism.threads=1 ");
  REQUIRE(line != std::string::npos);
  CHECK(people.out.substr(line, people.out.find('\n', line) - line).ends_with("same plan"));
  CHECK((people.out.find("\nnothing that was tried is better\n") != std::string::npos ||
         people.out.find("\nbest: --") != std::string::npos));
}

TEST_CASE("tune tries other blocks only if the order may change, and refuses what run refuses") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256") +
                                                            "\nshuffle { mode: BLOCK }\nmemory { limit: \"64MiB\" }");
  const ToolResult result = run_tool({"tune", pipeline, "--seconds", "1", "--json", "--change-order"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.out.find("shuffle.block_size=64KiB") != std::string::npos);
  CHECK(run_tool({"tune", pipeline, "--seconds", "0"}).code == 2);
  CHECK(run_tool({"tune", pipeline, "--set", "memory.limit=1KiB"}).code == 1);
  CHECK(run_tool({"tune", pipeline, "--set", "batch.global_batch_size=4096"}).code == 1);
}

TEST_CASE("Ctrl-C ends the search, and what is known so far is printed") {
  const TempDir dir;
  Tool tool(
      {"tune", dir.write("p.textproto", chess_pipeline("global_batch_size: 512")), "--seconds", "3600", "--json"});
  const ToolResult result = signalled(tool, SIGINT);
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.json().at("interrupted") == true);
}
