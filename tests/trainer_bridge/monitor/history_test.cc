// The rows of the monitor's history.
#include "trainer_bridge/monitor/history.h"

#include "support/catch.h"

using namespace feedline;

namespace {

// A report after `seconds` of a feed.
Report after(double seconds, uint64_t steps, double wait_share, std::vector<std::pair<double, uint64_t>> histogram,
             double readiness) {
  Report report;
  report.wall_s = seconds;
  report.steps = steps;
  report.records = 10 * steps;
  report.read_bytes = 100 * steps;
  report.next_wait_ratio = wait_share;
  report.next_us.histogram = std::move(histogram);
  report.data_readiness_ratio = readiness;
  return report;
}

std::chrono::system_clock::time_point at(double seconds) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(seconds)));
}

}  // namespace

TEST_CASE("history: each row is what one interval adds") {
  History history;
  CHECK(history.json(0) == Json{{"next", 0}, {"rows", Json::array()}});
  history.add(after(0, 0, 0, {}, 1), at(100));
  CHECK(history.json(0)["rows"].empty());
  // 2 s, of which half were waited for; 4 calls, one of which found its batch ready. The longest took 7 us.
  history.add(after(2, 4, 0.5, {{2, 2}, {5, 1}, {7, 1}}, 0.25), at(102));
  // 1 s without waiting; 10 calls that were all ready. The longest bound is another one now: the bucket of 7 us goes up
  // to 8, and has had one call before.
  history.add(after(3, 14, 1.0 / 3, {{2, 2}, {5, 1}, {8, 2}, {20, 9}}, 11.0 / 14), at(103));
  history.add(after(4, 14, 0.25, {{2, 2}, {5, 1}, {8, 2}, {20, 9}}, 11.0 / 14), at(104));
  const Json rows = history.json(0)["rows"];
  REQUIRE(rows.size() == 3);
  CHECK(rows[0] == Json{102.0, 2.0, 40, 4, 400, 0.5, 0.25, 5.0, 7.0});
  CHECK(rows[1][0] == 103.0);
  CHECK(rows[1][2] == 100);
  CHECK(rows[1][5].get<double>() == Approx(0).margin(1e-9));
  CHECK(rows[1][6].get<double>() == Approx(1));
  CHECK(rows[1][7] == 20.0);
  CHECK(rows[1][8] == 20.0);
  CHECK(rows[2][3] == 0);
  for (size_t column : {6, 7, 8}) CHECK(rows[2][column].is_null());
  CHECK(history.json(2) == Json{{"next", 3}, {"rows", {rows[2]}}});
  CHECK(history.json(9) == Json{{"next", 3}, {"rows", Json::array()}});
}

TEST_CASE("history: counters that begin again begin the interval again") {
  History history;
  history.add(after(50, 100, 0.5, {{5, 100}}, 1), at(100));
  history.add(after(0.5, 3, 0.5, {{5, 2}}, 0.5), at(101));  // set_epoch() came between them
  CHECK(history.json(0)["rows"] == Json{{101.0, 1.0, 30, 3, 300, 0.25, 0.5, 5.0, 5.0}});
}

TEST_CASE("history: the last ten minutes are kept") {
  History history;
  for (uint64_t i = 0; i <= 1000; i++)
    history.add(after(static_cast<double>(i), i, 0, {}, 1), at(static_cast<double>(i)));
  const Json json = history.json(0);
  CHECK(json["next"] == 1000);
  REQUIRE(json["rows"].size() == History::kept);
  CHECK(json["rows"].front()[0] == 401.0);
  CHECK(json["rows"].back()[0] == 1000.0);
  CHECK(history.json(999)["rows"].size() == 1);
}
