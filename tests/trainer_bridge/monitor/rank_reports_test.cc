// The reports of other ranks: where they are looked for, and what is told of those that do not answer.
#include "trainer_bridge/monitor/rank_reports.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/machine.h"
#include "base/rank_message.h"
#include "feedline/report.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::test;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

/// A server that answers as the monitor of a rank does, or with `body`.
struct RankServer : HttpServer {
  RankServer(std::string_view address, int rank, const std::string& token, const std::string& body = {})
      : HttpServer(parse_http_address("monitor", address), token) {
    Report report;
    report.rank = rank;
    report.records = 100 + static_cast<uint64_t>(rank);
    const std::string text = body.empty() ? to_json(report) : body;
    serve([text](const HttpRequest&) { return HttpResponse{.body = text}; }, [] {});
  }
  std::string places() const { return monitor_places(address()); }
};

/// Returns what RankReports knows once it has asked every rank.
Json asked(RankReports& ranks) {
  for (const auto until = std::chrono::steady_clock::now() + 1min;;) {
    const Json rows = ranks.json();
    bool all = true;
    for (const Json& row : rows) all = all && row.at("trouble") != "this rank has not answered yet; look again";
    if (all) return rows;
    REQUIRE(std::chrono::steady_clock::now() < until);
    std::this_thread::sleep_for(5ms);
  }
}

std::string places(const std::string& boot, const std::vector<std::string>& here,
                   const std::vector<std::string>& everywhere) {
  MessageWriter message;
  message.put_text(boot);
  for (const auto* texts : {&here, &everywhere}) {
    message.put<uint64_t>(texts->size());
    for (const std::string& text : *texts) message.put_text(text);
  }
  return message.take();
}

}  // namespace

TEST_CASE("monitors of other ranks are found wherever they listen") {
  const TempDir dir;
  const RankServer loopback("127.0.0.1:0", 1, "secret"), path("unix:" + dir.file("feed"), 2, "secret"),
      everywhere("0.0.0.0:0", 3, "secret");
  RankReports ranks(0, {"", loopback.places(), path.places(), everywhere.places()}, "secret");
  const Json rows = asked(ranks);
  REQUIRE(rows.size() == 3);
  for (int rank = 1; rank < 4; rank++) {
    const Json& row = rows[static_cast<size_t>(rank) - 1];
    INFO(row);
    CHECK(row.at("rank") == rank);
    CHECK(row.at("trouble").is_null());
    CHECK(row.at("report").at("records") == 100 + rank);
  }
  CHECK(rows[0].at("address") == loopback.address().text());
  CHECK(rows[1].at("address") == path.address().text());
  CHECK(rows[2].at("address") == fmt::format("http://127.0.0.1:{}/", everywhere.address().ip.port()));
}

TEST_CASE("a monitor is told from that of another rank at the same address of another machine") {
  const RankServer wrong("127.0.0.1:0", 7, ""), right("127.0.0.1:0", 1, "");
  RankReports ranks(
      0, {"", places("another machine", {"127.0.0.1:1"}, {wrong.address().ip.text(), right.address().ip.text()})}, "");
  CHECK(asked(ranks)[0].at("trouble") ==
        wrong.address().text() + ": the monitor of a different rank answers at this address");
  for (const auto until = std::chrono::steady_clock::now() + 1min; ranks.json()[0].at("report").is_null();) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    std::this_thread::sleep_for(5ms);
  }
  CHECK(ranks.json()[0].at("address") == right.address().text());
}

TEST_CASE("ranks without a report say why") {
  const RankServer locked("127.0.0.1:0", 2, "secret"), other("127.0.0.1:0", 3, "", "{\"rank\": 3}"),
      text("127.0.0.1:0", 4, "", "no JSON");
  const HttpServer silent(parse_http_address("monitor", "127.0.0.1:0"), "");  // its thread does not run
  RankReports ranks(0,
                    {"", "", locked.places(), other.places(), text.places(), monitor_places(silent.address()),
                     places("another machine", {"127.0.0.1:1"}, {}), places("another machine", {}, {"127.0.0.1:1"})},
                    "");
  const Json rows = asked(ranks);
  const auto trouble = [&](size_t rank) {
    const Json& row = rows.at(rank - 1);
    CHECK(row.at("rank") == rank);
    CHECK(row.at("report").is_null());
    CHECK(row.at("address").is_null());
    return row.at("trouble").get<std::string>();
  };
  CHECK(trouble(1) == "this rank has no monitor; give every rank a monitor");
  CHECK_THAT(trouble(2), Contains("401"));
  CHECK_THAT(trouble(3), Contains("not a monitor of this version"));
  CHECK_THAT(trouble(4), Contains("not a monitor of this version"));
  CHECK_THAT(trouble(5), Contains("did not answer in time"));
  CHECK_THAT(trouble(6), Contains("only the machine of this rank can reach"));
  CHECK_THAT(trouble(7), Contains("Connection refused"));
}

TEST_CASE("a report that is nested deeply is refused, and takes no stack") {
  const auto report = [](size_t levels) {
    const std::string list = std::string(levels, '[') + std::string(levels, ']');
    return R"({"rank":1,"epoch":0,"step":0,"epoch_steps":0,"steps":0,"records":0,"wall_s":0,"next_wait_ratio":0,)"
           R"("bad_records":0,"differing_epochs":0,"verdict":)" +
           list + R"(,"error":null})";
  };
  CHECK(shown_report(report(3), 1).at("verdict") == Json::parse("[[[]]]"));
  CHECK_THROWS_WITH(shown_report(report(20), 1), Contains("nested too deep"));
  CHECK_THROWS_WITH(shown_report(report(1'000'000), 1), Contains("nested too deep"));
}

TEST_CASE("places of another rank's monitor are addresses, and nothing else") {
  CHECK(places_in(places("another machine", {}, {"10.0.0.1:90"}), 4).size() == 1);
  CHECK_THROWS_WITH(places_in(places("another machine", {}, {"no address"}), 4), Contains("the monitor of rank 4"));
  CHECK_THROWS_WITH(places_in(places("another machine", {}, {}) + "x", 4), Contains("rank 4 has bytes after its end"));
  MessageWriter message;
  message.put_text("another machine");
  message.put<uint64_t>(UINT64_MAX);
  CHECK_THROWS_WITH(places_in(message.take(), 4), Contains("rank 4 ends too early"));
}

TEST_CASE("monitors are asked only while somebody wants to know") {
  std::atomic<int> asked_for = 0;
  HttpServer server(parse_http_address("monitor", "127.0.0.1:0"), "");
  server.serve(
      [&](const HttpRequest&) {
        asked_for++;
        return HttpResponse{.body = "{}"};
      },
      [] {});
  {
    RankReports ranks(0, {"", monitor_places(server.address())}, "");
    CHECK(ranks.json()[0].at("trouble") == "this rank has not answered yet; look again");
    asked(ranks);
    CHECK(asked_for > 0);
  }
  {
    const RankServer server_1("127.0.0.1:0", 1, "");
    RankReports ranks(0, {"", server_1.places()}, "");
    CHECK(asked(ranks)[0].at("trouble").is_null());
    const Json much_later = ranks.json(std::chrono::steady_clock::now() + 10s);  // the old report may be stale
    CHECK(much_later[0].at("report").is_null());
    CHECK(much_later[0].at("trouble") == "this rank has not answered yet; look again");
  }
  asked_for = 0;
  { const RankReports nobody_looks(0, {"", monitor_places(server.address())}, ""); }
  CHECK(asked_for == 0);
}
