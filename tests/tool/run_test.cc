// feedline run: reports, ranks, signals, and the state that it keeps.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "feedline/records.h"
#include "pipelines.h"
#include "support/catch.h"
#include "support/launch.h"
#include "tool.h"

using namespace feedline;
using namespace feedline::test;
using nlohmann::json;

namespace fs = std::filesystem;

TEST_CASE("run reports what the design fixes") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", chess_pipeline("global_batch_size: 256 last_batch_policy: PARTIAL"));
  const ToolResult result = run_tool({"run", pipeline, "--json", "--epochs", "2", "--replicas", "2", "--io", "pread",
                                      "--direct", "off", "--step-ms", "1"});  // 24 steps are long enough for rates
  INFO(result.err);
  REQUIRE(result.code == 0);
  const json report = result.json();
  for (const char* field :
       {"records", "wall_s", "records_per_s", "bytes_per_s", "read_bytes", "cpu_s", "cpu_ns_per_record",
        "rss_peak_bytes", "first_batch_s", "data_readiness_ratio", "next_wait_s", "next_wait_ratio"}) {
    INFO(field);
    CHECK(report.at(field).is_number());
  }
  const json& next_us = report.at("next_us");
  for (const char* field : {"p50", "p99", "max"}) CHECK(next_us.at(field).is_number());
  double longest = 0;
  int64_t calls = 0;
  for (const json& bucket : next_us.at("histogram")) {
    CHECK(bucket.at(0) > longest);
    longest = bucket.at(0);
    calls += bucket.at(1).get<int64_t>();
  }
  CHECK(longest == next_us.at("max"));
  CHECK(calls >= 46);  // all calls but the first of each replica
  CHECK(report.at("records") == 6000);
  CHECK(report.at("steps") == 24);
  CHECK(report.at("read_bytes") >= 2 * 686848);
  CHECK(!report.at("stages").empty());
  for (const json& stage : report.at("stages")) {
    for (const char* field : {"busy_s", "wait_s", "queue"}) CHECK(stage.at(field).is_number());
  }

  // The audit does not depend on batches and replicas, and sums up over epochs.
  const json one = run_tool({"run", pipeline, "--json", "--set", "batch.global_batch_size=100"}).json();
  CHECK(report.at("audit").get<uint64_t>() == 2 * one.at("audit").get<uint64_t>());

  const json few = run_tool({"run", pipeline, "--json", "--steps", "3", "--step-ms", "2"}).json();
  CHECK(few.at("records") == 3 * 256);
  CHECK(few.at("steps") == 3);
  CHECK(few.at("wall_s") >= 0.004);

  const json replayed = run_tool({"run", pipeline, "--json", "--replay", "2", "--steps", "1000"}).json();
  CHECK(replayed.at("records") == 1000 * 256);
  CHECK(replayed.at("verdict").is_null());
  CHECK(replayed.at("next_wait_ratio").is_null());  // there is no feed to wait for
}

TEST_CASE("run says how much of its time the trainer has lost, and what it waited for") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  const json report = run_tool({"run", pipeline, "--json", "--step-ms", "2", "--replicas", "2"}).json();
  double waited = 0;
  for (const auto& [stage, seconds] : report.at("waited_s").items()) {
    CHECK(seconds > 0);
    waited += seconds.get<double>();
  }
  CHECK(waited == Approx(report.at("next_wait_s").get<double>()));
  CHECK(report.at("next_wait_ratio") >= 0);
  CHECK(report.at("next_wait_ratio") <= 1);
  if (report.at("data_readiness_ratio") == 1) CHECK(report.at("waited_for") == "");

  const std::string trained = run_tool({"run", pipeline, "--step-ms", "2"}).out;
  INFO(trained);
  CHECK_THAT(trained, Catch::Contains("verdict  The ") && Catch::Contains("next() waited ") &&
                          Catch::Contains(" % of the time") && Catch::Contains("a batch was ready in ") &&
                          Catch::Contains("records/s") && Catch::Contains("no room: "));
  CHECK(report.at("verdict").get<std::string>().rfind("The ", 0) == 0);

  // Without a trainer the time spent waiting for the feed means nothing, so it is not reported as lost.
  const std::string sink = run_tool({"run", pipeline}).out;
  CHECK_THAT(sink, Catch::Contains("trainer  none (--step-ms 0): the rate is the highest that the feed reaches") &&
                       !Catch::Contains("ready") && !Catch::Contains("waits   "));
}

TEST_CASE("run has a monitor where it is told to") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  const ToolResult shown = run_tool({"run", pipeline, "--monitor", "127.0.0.1:0"});
  CHECK(shown.code == 0);
  CHECK_THAT(shown.err, Catch::StartsWith("feedline: the monitor is at http://127.0.0.1:"));
  const ToolResult nowhere = run_tool({"run", pipeline, "--monitor", "nowhere"});
  CHECK(nowhere.code == 2);
  CHECK_THAT(nowhere.err, Catch::Contains("--monitor: 'nowhere' is not an address"));
  const ToolResult open = run_tool({"run", pipeline, "--monitor", "0.0.0.0:0"});
  CHECK(open.code == 1);
  CHECK_THAT(open.err,
             Catch::Contains("other machines can reach 0.0.0.0:0; give the monitor a token (monitor_token, or "
                             "FEEDLINE_MONITOR_TOKEN"));
  setenv("FEEDLINE_MONITOR_TOKEN", "secret", 1);
  CHECK(run_tool({"run", pipeline, "--monitor", "0.0.0.0:0"}).code == 0);
  unsetenv("FEEDLINE_MONITOR_TOKEN");
}

TEST_CASE("a run that is too short reports no rates") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  const json report = run_tool({"run", pipeline, "--json", "--steps", "1"}).json();
  CHECK(report.at("records") == 256);
  CHECK(report.at("records_per_s").is_null());
  CHECK(report.at("bytes_per_s").is_null());
  CHECK(report.at("error").is_null());
  CHECK_THAT(
      run_tool({"run", pipeline, "--steps", "1"}).out,
      Catch::StartsWith("256 records in 1 step, ") && Catch::Contains(": the run was too short to measure a rate\n"));
}

TEST_CASE("what another process writes to is left alone") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 1024"));
  const std::string state = dir.file("state"), out = dir.file("out"), lock = state + ".lock";
  fs::create_directory(out);
  const auto hold = [](const std::string& path, int flags) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
    REQUIRE(flock(fd, LOCK_EX | LOCK_NB) == 0);
    return fd;
  };
  const auto refused = [](const ToolResult& result, const std::string& path, const std::string& why) {
    CHECK(result.code == 1);
    CHECK_THAT(result.err,
               Catch::Contains(path + ": another feedline process is " + why) && Catch::Contains("wait until"));
  };
  int held = hold(lock, O_RDWR | O_CREAT);
  refused(run_tool({"run", pipeline, "--state", state}), state, "using this file");
  refused(run_tool({"dump", pipeline, "--out", dir.file("other"), "--state", state}), state, "using this file");
  CHECK_FALSE(fs::exists(state));
  close(held);  // the lock file stays, as after a kill
  CHECK(run_tool({"run", pipeline, "--state", state}).code == 0);
  CHECK(fs::exists(state));
  CHECK_FALSE(fs::exists(lock));

  held = hold(out, O_RDONLY | O_DIRECTORY);
  refused(run_tool({"dump", pipeline, "--out", out}), out, "writing to this folder");
  CHECK(fs::is_empty(out));
  close(held);
  CHECK(run_tool({"dump", pipeline, "--out", out}).code == 0);
}

namespace {

/// The spans of a trace: by name, each with its process, its thread, its begin and end in microseconds, and its number.
struct TraceSpan {
  int process, thread;
  double begin, end;
  int64_t number;
};

std::map<std::string, std::vector<TraceSpan>> spans_in(const std::string& file) {
  std::map<std::string, std::vector<TraceSpan>> spans;
  const json trace = json::parse(read_file(file));
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts");
    spans[event.at("name")].push_back({event.at("pid"), event.at("tid"), begin, begin + event.at("dur").get<double>(),
                                       event.contains("args") ? event["args"].at("number").get<int64_t>() : -1});
  }
  return spans;
}

}  // namespace

TEST_CASE("a trace has each step of each stage, of the trainer, and of all ranks by one clock") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 128")), file = dir.file("t");
  CHECK(run_tool({"run", pipeline, "--trace", dir.file("no/such/folder")}).code == 1);
  fs::create_directory(dir.file("folder"));
  CHECK(run_tool({"run", pipeline, "--trace", dir.file("folder")}).code == 1);
  // A file may have at most 512 bytes.
  const std::string limited = "(ulimit -f 1; exec " FEEDLINE_TOOL " run " + pipeline + " --json --trace " + file +
                              " 2> /dev/null) | cat > " + dir.file("report");
  REQUIRE(std::system(limited.c_str()) == 0);
  const json unwritten = json::parse(std::ifstream(dir.file("report")));
  CHECK(unwritten.at("error").at("file") == file);
  CHECK(unwritten.at("steps") > 0);  // the report is there all the same
  const std::vector<std::string> traced = {"run", pipeline, "--json", "--step-ms", "1", "--trace", file};
  const ToolResult alone = run_tool(traced);
  INFO(alone.err);
  REQUIRE(alone.code == 0);
  const json report = alone.json();
  const auto steps = report.at("steps").get<size_t>();
  constexpr double rounding = 0.01;  // of times, in microseconds
  auto spans = spans_in(file);
  REQUIRE(spans["next"].size() == steps + 1);  // and the end of the epoch
  REQUIRE(spans["trainer"].size() == steps);
  for (size_t step = 0; step < steps; step++) {
    CHECK(spans["next"][step].number == static_cast<int64_t>(step));
    CHECK(spans["trainer"][step].number == static_cast<int64_t>(step));
    CHECK(spans["trainer"][step].end - spans["trainer"][step].begin >= 1000 - rounding);
    CHECK(spans["trainer"][step].end <= spans["next"][step + 1].begin + rounding);
    CHECK(spans["next"][step].end <= spans["trainer"][step].begin + rounding);
  }
  for (const json& stage : report.at("stages")) {
    const auto name = stage.at("name").get<std::string>();
    INFO(name);
    CHECK(spans[name.substr(0, name.find(' '))].size() >= stage.at("messages").get<size_t>());  // "unpack 0"
  }

  const std::string meet = "localhost:" + std::to_string(free_port());
  std::deque<Tool> ranks;
  for (const char* rank : {"0", "1"}) {
    std::vector<std::string> arguments = traced;
    arguments.insert(arguments.end(), {"--rank", rank, "--world-size", "2", "--meet", meet, "--set",
                                       "distribute.mode=REPLICATE", "--set", "parallelism.host_prefetch=1"});
    ranks.emplace_back(arguments);
  }
  for (Tool& rank : ranks) CHECK(rank.wait().code == 0);
  spans = spans_in(file);
  std::array<double, 2> first{1e300, 1e300}, last{};
  for (const TraceSpan& span : spans["next"]) {
    const auto process = static_cast<size_t>(span.process);
    REQUIRE(process < 2);
    first[process] = std::min(first[process], span.begin);
    last[process] = std::max(last[process], span.end);
  }
  CHECK(spans["next"].size() == 2 * (steps + 1));
  // With REPLICATE a rank is few steps ahead of the other, so by one clock their times overlap.
  REQUIRE(steps > 6);
  CHECK(std::max(first[0], first[1]) < std::min(last[0], last[1]));
}

TEST_CASE("ranks of the tool that meet compare what they were given, and are sent rows") {
  const TempDir dir;
  {
    RecordWriter writer(dir.file("data"));
    for (int i = 0; i < 96; i++) {
      const std::string record(20, static_cast<char>('a' + i % 26));
      writer.write(std::as_bytes(std::span(record)));
    }
    writer.close();
  }
  const std::string pipeline =
      dir.write("p.textproto",
                "source { files: 'data' record_type: RAW } feature { name: 'record' dtype: BYTES length: 20 }\n"
                "batch { global_batch_size: 12 last_batch_policy: DROP }");
  const auto ranks = [&](const std::vector<std::string>& of_last) {
    const std::string meet = "localhost:" + std::to_string(free_port());
    std::deque<Tool> tools;
    for (const char* rank : {"0", "1", "2"}) {
      std::vector<std::string> arguments = {"run",          pipeline, "--json", "--rank", rank,
                                            "--world-size", "3",      "--meet", meet};
      if (*rank == '2') arguments.insert(arguments.end(), of_last.begin(), of_last.end());
      tools.emplace_back(arguments);
    }
    std::vector<ToolResult> results;
    for (Tool& tool : tools) results.push_back(tool.wait());
    return results;
  };
  for (const ToolResult& result : ranks({})) {
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK(result.json().at("records") == 32);
    CHECK(result.json().at("received_bytes") == 0);
    CHECK(result.json().at("epoch_audit").at("holds") == true);  // the audit of all ranks together
  }
  const auto differ = [&](const std::vector<std::string>& of_last, const std::string& how) {
    for (const ToolResult& result : ranks(of_last)) {
      CHECK(result.code == 1);
      CHECK_THAT(result.err, Catch::Contains("rank 2 " + how));
    }
  };
  differ({"--set", "seed=7"}, "differs from rank 0: seed");
  differ({"--epochs", "2"}, "has --epochs 2, but rank 0 has --epochs 1");
  differ({"--steps", "3"}, "has --steps 3, but rank 0 has no --steps");
  differ({"--replay", "3"}, "has --replay 3, but rank 0 has no --replay");
  differ({"--trace", dir.file("trace")}, "has --trace, but rank 0 has no --trace");
  const std::string state = dir.file("state");
  CHECK(run_tool({"run", pipeline, "--rank", "2", "--world-size", "3", "--steps", "2", "--state", state}).code == 0);
  differ({"--state", state}, "has the state of step 2 of epoch 0, but rank 0 has no state");
  for (const ToolResult& result : ranks({"--state", dir.file("none/state")})) {  // the others hear why rank 2 ended
    CHECK(result.code == 1);
    CHECK_THAT(result.err, Catch::Contains("none/state.lock: ") && Catch::Contains("cannot be opened"));
  }
  dir.write("p.textproto", read_file(pipeline) + " distribute { mode: SCATTER }");
  const std::vector<ToolResult> scattered = ranks({});
  for (size_t rank = 0; rank < 3; rank++) {
    INFO(scattered[rank].err);
    REQUIRE(scattered[rank].code == 0);
    const auto report = scattered[rank].json();
    CHECK(report.at("records") == 32);
    CHECK(report.at("distribute_mode") == "SCATTER");
    CHECK((report.at("received_bytes") > 0) == (rank > 0));
    CHECK(report.at("outputs").at("record") == "made on the host");
  }
}

// Has a rank of two hear a signal while they are feeding, in each mode of distribution at the same time. Returns what became
// of the other.
std::vector<ToolResult> other_ranks(int signal, bool traced = false) {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", chess_pipeline("global_batch_size: 8 last_batch_policy: PARTIAL"));
  std::deque<Tool> heard, other;
  for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"}) {
    const std::string meet = "localhost:" + std::to_string(free_port()), socket = dir.file(mode);
    const auto rank = [&](const char* number, const std::vector<std::string>& more) {
      std::vector<std::string> arguments = {
          "run", pipeline, "--set", "distribute=mode: " + mode, "--rank", number, "--world-size", "2", "--meet", meet};
      arguments.insert(arguments.end(), more.begin(), more.end());
      if (traced) arguments.insert(arguments.end(), {"--trace", dir.file("trace of " + mode)});
      return arguments;
    };
    heard.emplace_back(rank("1", {"--step-ms", "100000", "--monitor", "unix:" + socket}));
    other.emplace_back(rank("0", {}));
    // The monitor of rank 1 is there once the ranks have met.
    for (int waits = 0; !fs::exists(socket + ".1"); waits++) {
      REQUIRE(waits < 60'000);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    heard.back().signal(signal);
  }
  std::vector<ToolResult> results;
  for (Tool& tool : other) results.push_back(tool.wait());
  return results;
}

void must_fail(const std::vector<ToolResult>& results) {
  for (const ToolResult& result : results) {
    INFO(result.err);
    CHECK(result.code == 1);
    CHECK_THAT(result.err, Catch::Contains("rank 1") && !Catch::Contains("the same version"));
  }
}

TEST_CASE("a signal ends a rank that waits for the audit of a slower rank") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 8"));
  const std::string meet = "localhost:" + std::to_string(free_port()), state = dir.file("state");
  const auto rank = [&](const std::string& number, const char* step_ms) {
    return std::vector<std::string>{
        "run", pipeline,    "--json", "--rank",  number,         "--world-size",  "2",       "--meet",
        meet,  "--step-ms", step_ms,  "--state", state + number, "--state-every", "86400000"};
  };
  const Tool slow(rank("1", "100000"));
  Tool waiting(rank("0", "0"));
  for (int waits = 0; read_file(state + "0").empty(); waits++) {  // it is written when the rank has fed its epoch
    REQUIRE(waits < 60'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  waiting.signal(SIGTERM);
  const ToolResult result = waiting.wait();
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.json().at("interrupted") == true);
}

TEST_CASE("a rank that does not come to the end of the epoch fails the run of those that do") {
  must_fail(other_ranks(SIGINT));
  must_fail(other_ranks(SIGINT, true));
  must_fail(other_ranks(SIGKILL));
}

// It is silent for 30 s.
TEST_CASE("a rank that is stopped fails the run of the others", "[.silent]") { must_fail(other_ranks(SIGSTOP)); }

TEST_CASE("run and dump say whether the epoch was all of its data, and fail where it was not") {
  const TempDir dir;
  const std::string file = dir.file("data");
  const auto bytes_of = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  {
    RecordWriter writer(file);
    for (int i = 0; i < 100; i++) writer.write(bytes_of(std::string(20, 'a')));
    writer.close();
  }
  const std::string pipeline = dir.write("p.textproto",
                                         "source { files: 'data' record_type: RAW index { stride: '64' } }\n"
                                         "batch { global_batch_size: 16 last_batch_policy: DROP }");
  const auto run = [&](std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", pipeline, "--json"});
    return run_tool(more);
  };
  for (const char* replicas : {"1", "2"}) {
    const ToolResult whole = run({"--replicas", replicas});
    CHECK(whole.code == 0);
    const json audit = whole.json().at("epoch_audit");
    CHECK(audit.at("holds") == true);
    CHECK(audit.at("delivered").get<uint64_t>() + audit.at("dropped").get<uint64_t>() ==
          audit.at("expected").get<uint64_t>());
    CHECK(whole.json().at("differing_epochs") == 0);
  }
  CHECK(run({"--steps", "2"}).json().at("epoch_audit").is_null());
  CHECK(run_tool({"run", pipeline}).out.find("delivered all of its data exactly once") != std::string::npos);
  uint64_t parts = 0;
  for (const char* rank : {"0", "1"}) {
    const ToolResult part = run({"--rank", rank, "--world-size", "2"});
    CHECK(part.code == 0);
    const json audit = part.json().at("epoch_audit");
    CHECK(audit.at("holds").is_null());
    for (const char* field : {"delivered", "dropped", "bad"}) parts += audit.at(field).get<uint64_t>();
    if (*rank == '1') CHECK(parts == audit.at("expected").get<uint64_t>());
  }
  CHECK(run_tool({"dump", pipeline, "--out", dir.file("out")}).code == 0);
  CHECK(json::parse(read_file(dir.file("out/report.json"))).at("epoch_audit").at("holds") == true);

  // Replaces one record by another valid one and restores the file's time. Nothing shows the change, so the index is
  // still used.
  struct stat before {};
  REQUIRE(stat(file.c_str(), &before) == 0);
  {
    const std::string beside = dir.file("beside");
    RecordWriter writer(beside);
    writer.write(bytes_of(std::string(20, 'b')));
    writer.close();
    const std::string bytes = read_file(beside);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(7 * bytes.size()))
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  const timespec times[] = {before.st_atim, before.st_mtim};
  REQUIRE(utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
  const ToolResult changed = run({"--epochs", "2", "--set", "source.index.mode=REQUIRE"});
  INFO(changed.err);
  CHECK(changed.code == 1);
  CHECK(changed.json().at("epoch_audit").at("holds") == false);
  CHECK(changed.json().at("differing_epochs") == 2);
  CHECK(changed.err.find("2 epochs did not deliver") != std::string::npos);
  const ToolResult dumped = run_tool({"dump", pipeline, "--out", dir.file("out")});
  CHECK(dumped.code == 1);
  CHECK(json::parse(read_file(dir.file("out/report.json"))).at("epoch_audit").at("holds") == false);
}

TEST_CASE("run fails with the place of the error, in JSON, too") {
  const TempDir dir;
  const std::string pipeline = dir.write(
      "p.textproto", "source { files: \"" + golden("chess/short_record.tfrecord") +
                         "\" }\n"
                         "feature { name: \"d\" dtype: BYTES length: 194 }\nbatch { global_batch_size: 8 }\n");
  const ToolResult failed = run_tool({"run", pipeline, "--json"});
  CHECK(failed.code == 1);
  CHECK(failed.json().at("errors").back().at("category") == "wrong_length");
  CHECK(failed.json().at("error").at("category") == "wrong_length");
  CHECK(failed.err.find("wrong_length") != std::string::npos);
  const json skipped =
      run_tool({"run", pipeline, "--json", "--epochs", "3", "--set", "errors.on_error=SKIP_RECORD"}).json();
  CHECK(skipped.at("errors").size() == 1);
  CHECK(skipped.at("bad_records") == 1);
  const ToolResult told = run_tool({"run", pipeline, "--set", "errors.on_error=SKIP_RECORD"});
  CHECK(told.out.find("[wrong_length]") != std::string::npos);
  const ToolResult missing = run_tool(
      {"run", dir.write("q.textproto", "source { files: \"nothing-*\" }\nbatch { global_batch_size: 8 }"), "--json"});
  CHECK(missing.code == 1);
  CHECK(missing.err.find(dir.file("nothing-*")) != std::string::npos);
}

TEST_CASE("run keeps its state, goes on from it, and counts epochs from the first") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", chess_pipeline("global_batch_size: 256 last_batch_policy: PARTIAL"));
  const std::string state = dir.file("state");
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", pipeline, "--json", "--state", state});
    return run_tool(more);
  };
  const ToolResult first = run({"--epochs", "2", "--steps", "5", "--replicas", "2"});
  REQUIRE(first.code == 0);
  CHECK(first.json().at("resumed").is_null());
  CHECK(json::parse(read_file(state)).at("step") == 5);
  const ToolResult second = run({"--epochs", "2"});
  REQUIRE(second.code == 0);
  CHECK(second.err.find("step 5 of epoch 0") != std::string::npos);
  CHECK(second.json().at("resumed").at("step") == 5);
  CHECK(second.json().at("records") == 2 * 3000 - 5 * 256);
  CHECK(json::parse(read_file(state)).at("epoch") == 2);
  const std::string end = read_file(state);
  const ToolResult nothing = run({"--epochs", "2"});
  CHECK(nothing.code == 0);
  CHECK(nothing.json().at("records") == 0);
  CHECK(run({"--epochs", "3"}).json().at("records") == 3000);

  // Two ranks resume from the state that one rank left.
  dir.write("state", end);
  uint64_t records = 0;
  for (const char* rank : {"0", "1"}) {
    const std::string own = dir.write(std::string("state-") + rank, end);
    const ToolResult part =
        run_tool({"run", pipeline, "--json", "--state", own, "--epochs", "3", "--rank", rank, "--world-size", "2"});
    records += part.json().at("records").get<uint64_t>();
  }
  CHECK(records == 3000);
  CHECK(read_file(dir.file("state-0")) == read_file(dir.file("state-1")));

  const ToolResult changed = run({"--set", "batch.global_batch_size=128", "--epochs", "3"});
  CHECK(changed.code == 1);
  CHECK(changed.err.find("changed: batch") != std::string::npos);
  CHECK(changed.err.find(state) != std::string::npos);
  CHECK(read_file(state) == end);
  CHECK(run({"--set", "batch.global_batch_size=128", "--epochs", "3", "--accept-changes"}).code == 0);
  dir.write("state", "nonsense");
  CHECK(run({}).code == 1);
  CHECK(run({"--replay", "2"}).code == 2);
  CHECK(run_tool({"run", pipeline, "--accept-changes"}).code == 2);
  fs::remove(state);
  fs::create_directory(state);
  CHECK(run({}).err.find("io_error") != std::string::npos);
  CHECK(run_tool({"run", pipeline, "--state", dir.file("none/state")}).code == 1);  // the state cannot be stored
}

TEST_CASE("SIGINT, SIGTERM and SIGHUP end a run, which still prints its report") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 256"));
  const auto before = std::signal(SIGHUP, SIG_DFL);  // the tests may run under nohup
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    Tool tool({"run", pipeline, "--json", "--set", "epoch.repeat=-1", "--step-ms", "1"});
    const ToolResult result = signalled(tool, number);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.json().at("interrupted") == true);
  }
  std::signal(SIGHUP, before);
}

TEST_CASE("a run that is ended by a signal has kept what it trained, and goes on there") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 10"));
  const auto before = std::signal(SIGHUP, SIG_DFL);  // the tests may run under nohup
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string state = dir.file("state-" + std::to_string(number));
    const std::vector<std::string> arguments = {"run",     pipeline, "--json",        "--step-ms", "3",
                                                "--state", state,    "--state-every", "86400000"};
    Tool tool(arguments);
    const ToolResult result = signalled(tool, number);
    INFO(result.err);
    CHECK(result.code == 0);
    const auto trained = result.json().at("records").get<uint64_t>();
    REQUIRE(trained < 3000);
    if (trained > 0) CHECK(json::parse(read_file(state)).at("step") == trained / 10);
    std::vector<std::string> rest = arguments;
    rest[4] = "0";
    CHECK(run_tool(rest).json().at("records") == 3000 - trained);
  }
  std::signal(SIGHUP, before);
}

TEST_CASE("a state is read to its end, also one of many sources") {
  const TempDir dir;
  const std::string pipeline = dir.write("p.textproto", chess_pipeline("global_batch_size: 100")),
                    state = dir.file("s");
  REQUIRE(run_tool({"run", pipeline, "--state", state, "--steps", "10"}).code == 0);
  const std::string kept = read_file(state);
  dir.write("s", std::string(100'000, ' ') + kept);  // JSON may have spaces anywhere
  const ToolResult rest = run_tool({"run", pipeline, "--state", state, "--json"});
  INFO(rest.err);
  REQUIRE(rest.code == 0);
  CHECK(rest.json().at("records") == 3000 - 1000);
}
