// A feeder's monitor: what it tells of the feed, and that it follows the feeder's life.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/spans.h"
#include "damage.h"
#include "data.h"
#include "support/catch.h"
#include "support/http_client.h"
#include "support/log_lines.h"

using namespace feedline;
using namespace feedline::test;
using Catch::Contains;
using Catch::StartsWith;
using nlohmann::json;

namespace {

Options with_monitor(const std::string& address = "127.0.0.1:0") {
  Options options;
  options.monitor = address;
  return options;
}

// Returns where the feeder's monitor is.
HttpAddress monitor_of(const Feeder& feeder) {
  const std::string url = feeder.monitor_address();  // http://ADDRESS/
  return parse_http_address("monitor", url.substr(7, url.size() - 8));
}

std::string error_of(const Pipeline& pipeline, const Options& options) {
  try {
    Feeder(pipeline, options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("monitor: what it tells is what the feeder says of itself") {
  const Data data({50, 50});
  const LogLines log;
  Feeder feeder(data.pipeline(batch_of(10, "PAD")), with_monitor());
  CHECK(log.wait_for("the monitor of the feed is at " + feeder.monitor_address()));
  const HttpAddress at = monitor_of(feeder);
  CHECK(at.ip.is_loopback());
  for (int step = 0; step < 3; step++) feeder.next();

  json told = json::parse(body(get(at, "/report.json"))), said = json::parse(to_json(feeder.report()));
  CHECK(told["step"] == 3);
  CHECK(told["steps_per_epoch"] == 10);
  CHECK(told["records"] == 30);
  CHECK(told["error"].is_null());
  // The feed prepares the next batches, and time goes on.
  for (json* report : {&told, &said})
    for (const char* moves : {"wall_s", "stages", "read_bytes", "bytes_read", "needed_bytes", "bytes_needed", "verdict",
                              "next_wait_ratio", "next_wait_share", "layout_hits"})
      report->erase(moves);
  CHECK(told == said);

  CHECK(body(get(at, "/healthz")) == "ok: epoch 0, step 3\n");
  CHECK(body(get(at, "/plan.txt")) == feeder.plan_text());
  CHECK_THAT(get(at, "/"), Contains("\r\nContent-Type: text/html; charset=utf-8\r\n") && Contains("<title>feedline"));
  CHECK_THAT(get(at, "/metrics"),
             Contains("\r\nContent-Type: text/plain; version=0.0.4;") && Contains("\nfeedline_records_total 30\n"));
  CHECK_THAT(get(at, "/metrics", "Accept: application/openmetrics-text;version=1.0.0\n"),
             Contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;") && Contains("\n# EOF\n"));
  CHECK_THAT(get(at, "/history.json"), Contains("{\"next\":"));
  CHECK_THAT(get(at, "/other"), StartsWith("HTTP/1.1 404 "));

  feeder.stop();
  CHECK_THAT(get(at, "/healthz"), StartsWith("HTTP/1.1 503 ") && Contains("\r\n\r\nended: the feeder was stopped"));
  CHECK(json::parse(body(get(at, "/report.json")))["error"]["category"] == "stalled");
}

TEST_CASE("monitor: a trace has what the threads have done meanwhile") {
  const Data data({50, 50});
  Feeder feeder(data.pipeline(batch_of(10, "PAD")), with_monitor());
  const HttpAddress at = monitor_of(feeder);
  std::string trace;
  std::thread client([&] { trace = get(at, "/trace?seconds=1"); });
  while (!SpanRecording::goes_on()) std::this_thread::yield();
  CHECK_THAT(get(at, "/trace"), StartsWith("HTTP/1.1 503 ") && Contains("a trace is already being recorded"));
  while (SpanRecording::goes_on())
    while (feeder.next()) continue;
  client.join();
  std::set<std::string> names;
  const json document = json::parse(body(trace));
  for (const json& event : document.at("traceEvents"))
    if (event.at("ph") == "X") names.insert(event.at("name"));
  for (const char* name : {"next", "trainer", "parse", "unpack"}) CHECK(names.contains(name));
  CHECK_FALSE(SpanRecording::goes_on());
  for (const char* wrong : {"61", "0", "", "x", "5x", "-1", "18446744073709551616", "18446744073709551621"})
    CHECK_THAT(get(at, std::string("/trace?seconds=") + wrong), StartsWith("HTTP/1.1 400 "));
  CHECK_THAT(get(at, "/history.json?from=18446744073709551616"), StartsWith("HTTP/1.1 400 "));
  CHECK_THAT(get(at, "/history.json?from=0&x=y"), StartsWith("HTTP/1.1 200 "));
  CHECK_THAT(get(at, "/trace?seconds=1", "Sec-Fetch-Site: cross-site\n"), StartsWith("HTTP/1.1 403 "));
  CHECK_THAT(get(at, "/", "Sec-Fetch-Site: cross-site\n"), StartsWith("HTTP/1.1 200 "));  // a link to it
}

TEST_CASE("monitor: a feed that has failed says why, until it goes on") {
  const Data data({50, 50});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  Feeder feeder(data.pipeline(batch_of(10, "PAD")), with_monitor());
  const HttpAddress at = monitor_of(feeder);
  CHECK_THAT(get(at, "/healthz"), StartsWith("HTTP/1.1 200 "));
  CHECK_THROWS_AS(read_epoch(feeder), Error);
  const std::string health = get(at, "/healthz");
  CHECK_THAT(health, StartsWith("HTTP/1.1 503 ") && Contains("ended: ") && Contains("part-001.tfrecord"));
  CHECK(std::ranges::count(body(health), '\n') == 1);
  const Report report = feeder.report();
  REQUIRE(report.error);
  CHECK(report.error->category() == Category::bad_data_crc);
  feeder.set_epoch(1);
  CHECK(body(get(at, "/healthz")) == "ok: epoch 1, step 0\n");
  CHECK_FALSE(feeder.report().error);
}

TEST_CASE("monitor: where it cannot be, there is no feeder") {
  const Data data({10});
  const Pipeline pipeline = data.pipeline(batch_of(10, "PAD"));
  CHECK(Feeder(pipeline).monitor_address().empty());
  CHECK_THAT(error_of(pipeline, with_monitor("here")), StartsWith("options.monitor: 'here' is not an address"));
  CHECK_THAT(error_of(pipeline, with_monitor("0.0.0.0:0")),
             StartsWith("options.monitor: other machines can reach 0.0.0.0:0; give the monitor a token (monitor"));
  Options open = with_monitor("0.0.0.0:0");
  open.monitor_token = "secret";
  const Feeder others_may(pipeline, open);
  const HttpAddress at = parse_http_address("monitor", fmt::format("127.0.0.1:{}", monitor_of(others_may).ip.port()));
  CHECK_THAT(get(at, "/healthz"), StartsWith("HTTP/1.1 401 "));
  CHECK_THAT(get(at, "/healthz", "Authorization: Basic ZmVlZGxpbmU6c2VjcmV0\n"), StartsWith("HTTP/1.1 200 "));

  const Feeder first(pipeline, with_monitor());
  const std::string taken = monitor_of(first).ip.text();
  CHECK_THAT(error_of(pipeline, with_monitor(taken)),
             StartsWith("options.monitor: listening at " + taken + ": Address already in use"));
}

TEST_CASE("monitor: ranks that are given one address share it out") {
  const Data data({10});
  const Pipeline pipeline = data.pipeline(batch_of(2, "PAD"));
  const auto rank = [](int number, const std::string& address) {
    Options options = with_monitor(address);
    options.rank = number;
    options.world_size = 2;
    return options;
  };
  // A port with a free neighbour.
  std::unique_ptr<Feeder> zero, one;
  for (int tries = 0; tries < 500 && !one; tries++) {  // others may have just used many ports
    zero = nullptr;
    zero = std::make_unique<Feeder>(pipeline, rank(0, "127.0.0.1:0"));
    const std::string address = monitor_of(*zero).ip.text();
    zero = nullptr;
    try {
      zero = std::make_unique<Feeder>(pipeline, rank(0, address));
      one = std::make_unique<Feeder>(pipeline, rank(1, address));
    } catch (const Error&) {
    }
  }
  REQUIRE(one);
  CHECK(monitor_of(*one).ip.port() == monitor_of(*zero).ip.port() + 1);
  CHECK(json::parse(body(get(monitor_of(*one), "/report.json")))["rank"] == 1);
  CHECK_THAT(error_of(pipeline, rank(1, "127.0.0.1:65535")), Contains("which is 65536, but the largest port is 65535"));
  const Feeder at_path(pipeline, rank(1, "unix:" + data.dir().file("feed.sock")));
  CHECK(at_path.monitor_address() == "unix:" + data.dir().file("feed.sock.1"));
}

TEST_CASE("monitor: it answers while the feeder moves, and ends with it") {
  const Data data({100});
  const Pipeline pipeline = data.pipeline(batch_of(10, "PAD"));
  for (int round = 0; round < 5; round++) {
    std::optional<Feeder> feeder(std::in_place, pipeline, with_monitor());
    const HttpAddress at = monitor_of(*feeder);
    std::atomic<bool> moved = false;
    std::thread client([&] {
      while (!moved)
        for (const char* path : {"/report.json", "/healthz", "/metrics", "/history.json", "/plan.txt"})
          CHECK_THAT(get(at, path), StartsWith("HTTP/1.1 200 "));
    });
    for (uint64_t epoch = 1; epoch < 10; epoch++) {
      feeder->set_epoch(epoch);
      feeder->next();
    }
    moved = true;
    client.join();
    const net::Socket waits = connect_to(at);
    feeder.reset();
    CHECK(receive(waits).empty());
    CHECK_THROWS_AS(connect_to(at), Error);
  }
}

TEST_CASE("monitor: a fork does not disturb it") {
  const Data data({100});
  auto feeder = std::make_unique<Feeder>(data.pipeline(batch_of(10, "PAD")), with_monitor());
  const HttpAddress at = monitor_of(*feeder);
  const pid_t child = fork();
  if (child == 0) {
    feeder.reset();
    _exit(0);
  }
  int status = 1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_THAT(get(at, "/healthz"), StartsWith("HTTP/1.1 200 "));
}
