// Kills a feeding run at random moments. Its state must be whole and never ahead of what was delivered, and a run that
// resumes from it must deliver the rest.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "feedline/feeder.h"
#include "feedline/records.h"
#include "support/catch.h"
#include "tool.h"
#include "tool/feeding/state_file.h"

using namespace feedline;
using namespace feedline::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Place = std::pair<uint64_t, uint64_t>;  // epoch, step

constexpr int records = 3000, batch = 50, steps = records / batch;
constexpr uint64_t epochs = 2;
constexpr size_t line_bytes = 512;  // divides a page: SIGKILL may cut a write() between two pages, not within one

struct Feed {
  explicit Feed(const std::string& order) {
    RecordWriter writer(dir.file("data"));
    for (int i = 0; i < records; i++) {
      const std::string record = std::to_string(100'000 + i);
      writer.write(std::as_bytes(std::span(record)));
    }
    writer.close();
    dir.write("p.textproto", "source { files: 'data' record_type: RAW } feature { name: 'record' dtype: BYTES } " +
                                 order + " batch { global_batch_size: " + std::to_string(batch) + " }");
  }
  std::string pipeline() const { return dir.file("p.textproto"); }
  std::string state() const { return dir.file("state"); }
  std::string log() const { return dir.file("log"); }

  /// Returns the place at which the next run resumes. A state that exists must be whole.
  Place place() const {
    if (!fs::exists(state())) return {0, 0};
    const json text = json::parse(read_file(state()));
    return {text.at("epoch").get<uint64_t>(), text.at("step").get<uint64_t>()};
  }
  TempDir dir;
};

const std::vector<std::string> orders = {"", "shuffle { block_size: '16KiB' buffer_size: 500 }"};

/// A trainer in a process of its own: it logs each batch, then stores the state.
[[noreturn]] void train(const Feed& feed) {
  try {
    const int log = open(feed.log().c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
    Feeder feeder(load_pipeline(feed.pipeline()));
    tool::StateFile state(feed.state());
    state.restore(feeder, false);
    while (feeder.epoch() < epochs) {
      if (const Batch given = feeder.next()) {
        const auto bytes = given.at("record.bytes").as<char>();
        std::string line = std::to_string(given.epoch()) + " " + std::to_string(given.step()) + " " +
                           std::string(bytes.begin(), bytes.end());
        line.resize(line_bytes - 1, ' ');
        line += '\n';
        if (write(log, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(2);
      }
      state.save(feeder.get_state());
    }
    _exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    _exit(1);
  }
}

/// Returns the place after the last logged batch. Adds the logged batches to `delivered` and sets `lines` to their
/// number.
Place logged(const Feed& feed, std::map<Place, std::string>& delivered, int& lines) {
  std::ifstream in(feed.log());
  Place after{0, 0}, at;
  std::string content;
  for (lines = 0; in >> at.first >> at.second >> content; lines++) {
    const auto [known, is_new] = delivered.emplace(at, content);
    REQUIRE(known->second == content);  // also if it was delivered twice
    after = at.second + 1 < steps ? Place{at.first, at.second + 1} : Place{at.first + 1, 0};
  }
  return after;
}

/// Returns the number of steps before a place: {1, steps} and {2, 0} are the same.
uint64_t steps_of(const Place& place) { return place.first * steps + place.second; }

void kill_trainer(int wanted) {
  for (const std::string& order : orders) {
    std::mt19937 random(5);
    std::map<Place, std::string> reference;
    int lines = 0, killed = 0, between = 0, rounds = 0;
    auto took = std::chrono::microseconds(0);
    while (killed < wanted || rounds < 2) {
      const Feed feed(order);
      const bool whole = rounds++ == 0;  // the first round is not killed
      int kills = 0;
      uint64_t kept_before = 0;
      auto longest = took;
      for (bool ended = false; !ended;) {
        const auto begin = Clock::now();
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) train(feed);
        if (!whole) {
          usleep(static_cast<useconds_t>(random() % static_cast<uint64_t>(longest.count())));
          kill(child, SIGKILL);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        ended = WIFEXITED(status);
        if (ended) REQUIRE(WEXITSTATUS(status) == 0);
        if (whole) took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
        kills += !ended;
        std::map<Place, std::string> delivered = reference;
        const uint64_t given = steps_of(logged(feed, delivered, lines)), kept = steps_of(feed.place());
        if (whole) reference = delivered;
        // Resuming may take longer than a whole run did, so that every trainer is killed before it has begun.
        if (kept == kept_before) longest += longest / 4;
        kept_before = kept;
        REQUIRE(delivered == reference);
        REQUIRE(kept <= given);
        REQUIRE(given <= kept + 1);
        size_t names = 0;
        for ([[maybe_unused]] const auto& entry : fs::directory_iterator(feed.dir.path())) names++;
        // At most: data, pipeline, log, state, and the lock file that a trainer leaves that was killed or ended by
        // _exit. A kill during a write leaves one more file until the next run.
        REQUIRE(names <= (ended ? 5 : 6));
        between += !ended && kept > 0 && kept < epochs * steps;
      }
      REQUIRE(reference.size() == epochs * steps);
      REQUIRE(lines >= static_cast<int>(epochs) * steps);
      REQUIRE(lines <= static_cast<int>(epochs) * steps + kills);  // each kill repeats at most one step
      std::map<Place, std::string> delivered;
      logged(feed, delivered, lines);
      REQUIRE(delivered == reference);
      killed += kills;
    }
    std::printf("trainer: killed %d times, %d of them in the middle\n", killed, between);
  }
}

void kill_run(int wanted) {
  constexpr double step_ms = 2;
  const Feed feed(orders[1]);
  std::mt19937 random(6);
  const std::vector<std::string> arguments = {"run",
                                              feed.pipeline(),
                                              "--json",
                                              "--state",
                                              feed.state(),
                                              "--state-every",
                                              "1",
                                              "--epochs",
                                              std::to_string(epochs),
                                              "--step-ms",
                                              std::to_string(step_ms),
                                              "--replicas",
                                              "2"};
  int killed = 0, between = 0;
  while (killed < wanted) {
    const uint64_t before = steps_of(feed.place());
    const auto begin = Clock::now();
    Tool tool(arguments);
    usleep(static_cast<useconds_t>(random() % 150'000));
    tool.signal(SIGKILL);
    const ToolResult result = tool.wait();
    const uint64_t after = steps_of(feed.place());
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    REQUIRE(after >= before);
    REQUIRE(static_cast<double>(after - before) * step_ms <= ms);  // each step takes step_ms
    if (result.code == 128 + SIGKILL) {
      killed++;
      between += after > before;
    } else {
      REQUIRE(result.code == 0);
    }
    if (after == epochs * steps) fs::remove(feed.state());
  }
  const uint64_t before = steps_of(feed.place());
  const ToolResult rest = run_tool(arguments);
  REQUIRE(rest.code == 0);
  CHECK(rest.json().at("records") == (epochs * steps - before) * batch);
  std::printf("run: killed %d times, %d of them after it had kept a state\n", killed, between);
}

}  // namespace

TEST_CASE("a trainer killed at any moment is given every sample, and a step at most twice") { kill_trainer(20); }
TEST_CASE("run --state killed at any moment") { kill_run(20); }
TEST_CASE("a trainer killed thousands of times", "[.stress]") { kill_trainer(1500); }
TEST_CASE("run --state killed thousands of times", "[.stress]") { kill_run(1500); }
