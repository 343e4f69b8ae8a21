// The report as JSON has every field of the Report.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "damage.h"
#include "data.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("report JSON: the fields of a feed") {
  const Data data({50, 50});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  Feeder feeder(data.pipeline("errors { on_error: SKIP_RECORD } " + batch_of(10, "PAD")));
  read_epoch(feeder);
  const Report report = feeder.report();
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(to_json(report).rfind("{\n  \"feedline_json\": 1,", 0) == 0);
  CHECK_FALSE(report.verdict.empty());
  CHECK(json["verdict"] == report.verdict);
  CHECK(json["error"].is_null());
  CHECK(json["rank"] == 0);
  CHECK(json["world_size"] == 1);
  CHECK(json["replicas"] == 1);
  CHECK(json["threads"] == report.threads);
  CHECK(report.threads > 0);
  CHECK(json["epoch"] == 1);
  CHECK(json["step"] == 0);
  CHECK(json["epoch_steps"] == 10);
  CHECK(json["records"] == 99);
  CHECK(json["steps"] == 10);
  CHECK(json["filler_rows"] == 1);
  CHECK(json["dropped_samples"] == report.dropped_samples);
  CHECK(json["audit"] == report.audit);
  CHECK(json["epoch_audit"]["holds"] == true);
  CHECK(json["epoch_audit"]["expected"] == report.last_epoch->expected);
  CHECK(json["differing_epochs"] == 0);
  CHECK(json["bad_records"] == 1);
  REQUIRE(json["errors"].size() == 1);
  CHECK(json["errors"][0]["category"] == "bad_data_crc");
  CHECK(json["errors"][0]["file"] == data.path(1));
  CHECK(json["errors"][0]["record"] == 7);
  CHECK(json["errors"][0]["feature"].is_null());
  CHECK(json["cache"].is_null());
  CHECK(json["count_s"] == report.count_s);
  CHECK(json["first_batch_s"] == report.first_batch_s);
  CHECK(json["wall_s"] == report.wall_s);
  CHECK(json["next_us"]["p99"] == report.next_us.p99);
  CHECK(json["next_us"]["histogram"].size() == report.next_us.histogram.size());
  CHECK(json["next_wait_s"] == report.next_wait_s);
  CHECK(json["waited_for"] == report.waited_for);
  CHECK(json["waited_s"].size() == report.waited_s.size());
  CHECK(json["distribute_mode"] == "SPLIT");
  for_each_counter(report, [&](const CounterInfo& info, auto value) {
    INFO(info.name);
    CHECK(json[info.name] == value);
  });
  CHECK(report.read_bytes > 0);
  CHECK(report.needed_bytes > 0);
  CHECK(report.planned_bytes > 0);
  // The names before version 0.2.
  for (const auto& [before, now] :
       std::vector<std::pair<const char*, const char*>>{{"memory_planned", "planned_bytes"},
                                                        {"steps_per_epoch", "epoch_steps"},
                                                        {"bytes_read", "read_bytes"},
                                                        {"bytes_needed", "needed_bytes"},
                                                        {"bytes_copied", "uploaded_bytes"},
                                                        {"bytes_between_gpus", "between_gpus_bytes"},
                                                        {"bytes_sent", "sent_bytes"},
                                                        {"bytes_received", "received_bytes"},
                                                        {"data_readiness", "data_readiness_ratio"},
                                                        {"next_wait_share", "next_wait_ratio"},
                                                        {"dropped", "dropped_samples"},
                                                        {"filler", "filler_rows"},
                                                        {"errors_total", "bad_records"}}) {
    INFO(before);
    CHECK(json.at(before) == json.at(now));
  }
  CHECK(json["outputs"]["id"] == "made on the host");
  CHECK(json["backend"] == report.backend);
  REQUIRE(json["stages"].size() == report.stages.size());
  CHECK(json["stages"][0]["name"] == "read");
  CHECK(json["stages"][0]["messages"] == report.stages[0].messages);
}

TEST_CASE("the report says how many records of an epoch lacked a feature") {
  const Data data({50, 50});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  Feeder feeder(
      data.pipeline("feature { name: 'rare' dtype: INT64 default_value { int64_value: 0 } } "
                    "feature { name: 'none' dtype: FLOAT32 kind: VARIABLE } "
                    "errors { on_error: SKIP_RECORD absent_feature: IGNORE } shuffle { mode: BLOCK } " +
                    batch_of(10, "PAD")));
  const std::vector<std::pair<std::string, uint64_t>> all = {{"rare", 99}, {"none", 99}};
  CHECK(feeder.report().missing_of == 0);
  for (int epoch = 0; epoch < 3; epoch++) {
    read_epoch(feeder);
    const Report report = feeder.report();
    CHECK(report.missing_of == 99);
    CHECK(report.missing == all);
  }
  const auto json = nlohmann::json::parse(to_json(feeder.report()));
  CHECK(json["missing"] == nlohmann::json{{"rare", 99}, {"none", 99}});
  CHECK(json["missing_of"] == 99);
}

TEST_CASE("a damaged record is not counted as lacking a feature, and one that a formula refuses is") {
  const Data data({100});
  const auto pipeline = [&](const std::string& divisor, const std::string& more) {
    return data
        .pipeline(
            "feature { name: 'rare' dtype: INT64 default_value { int64_value: 0 } } "
            "feature { name: 'none' dtype: FLOAT32 kind: VARIABLE } output { name: 'id' feature: 'id' } "
            "output { name: 'rare' feature: 'rare' } output { name: 'none' feature: 'none' } "
            "output { name: 'y' expression { formula: 'mod(7, " +
            divisor + ")' } } " + more)
        .with("source.index", "stride: '1KiB'");
  };
  // Under RAISE the first epoch ends before record 70, but the rest of its chunk has been parsed.
  Feeder raises(pipeline("id - 70", "epoch { steps: 5 } errors { absent_feature: IGNORE } " + batch_of(10, "DROP")));
  CHECK(read_epoch(raises).front().all() == numbers(50));
  const Report raised = raises.report();
  REQUIRE(raised.missing.size() == 2);
  for (const auto& [feature, count] : raised.missing) CHECK(count == raised.missing_of);

  flip(data.path(0), offset_of(data.path(0), 57) + 12 + 9);  // the index has it as a good record
  Feeder skips(pipeline("id * (id - 40)",  // refuses records 0 and 40, and the zeros in place of record 57
                        "errors { on_error: SKIP_RECORD absent_feature: IGNORE } " + batch_of(10, "PAD")));
  CHECK(read_epoch(skips).front().all().size() == 97);
  const Report skipped = skips.report();
  CHECK(skipped.missing_of == 99);
  CHECK(skipped.missing == std::vector<std::pair<std::string, uint64_t>>{{"rare", 99}, {"none", 99}});
}

TEST_CASE("the report says which bytes were read for nothing") {
  const Data data({5000});
  const auto size = std::filesystem::file_size(data.path(0));
  const auto of_epoch = [&](const std::string& shuffle) {
    Feeder feeder(data.pipeline(shuffle + batch_of(50, "PAD")));
    read_epoch(feeder);
    feeder.stop();
    return feeder.report();
  };
  const Report in_order = of_epoch(""), global = of_epoch("shuffle { mode: GLOBAL } ");
  // The feed may have begun the next epoch.
  CHECK(in_order.needed_bytes >= size);
  CHECK(in_order.needed_bytes < in_order.read_bytes + in_order.read_bytes / 10);  // by the mean of the records' sizes
  CHECK(global.needed_bytes >= size);
  CHECK(global.read_bytes > 10 * global.needed_bytes);  // 16 KiB, the index's stride, for each small record
}

TEST_CASE("the share of time that next() waited is of the threads that call it") {
  const Data data({2000});
  const auto check_share = [](const Feeder& feeder, double threads) {
    const Report report = feeder.report();
    CHECK(report.next_wait_ratio == Approx(std::min(report.next_wait_s / report.wall_s / threads, 1.0)));
  };
  Feeder in_turn(data.pipeline(batch_of(100, "PAD")), replicas(2));
  for (int step = 0; step < 5; step++)
    for (int replica = 0; replica < 2; replica++) in_turn.next(replica);
  check_share(in_turn, 1);

  Feeder by_two(data.pipeline(batch_of(100, "PAD")), replicas(2));
  std::thread other([&] {
    for (int step = 0; step < 5; step++) by_two.next(1);
  });
  for (int step = 0; step < 5; step++) by_two.next(0);
  other.join();
  check_share(by_two, 2);
}

TEST_CASE("the report has the error that ended the feed, and where that was") {
  const Data data({50, 50});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  Feeder feeder(data.pipeline(batch_of(10, "PAD")));
  CHECK_FALSE(feeder.report().error);
  CHECK_THROWS_AS(read_epoch(feeder), Error);
  const Report failed = feeder.report();
  REQUIRE(failed.error);
  CHECK(failed.error->category() == Category::bad_data_crc);
  CHECK(failed.epoch == 0);
  CHECK(failed.step == 5);
  CHECK(nlohmann::json::parse(to_json(failed))["error"]["record"] == 7);

  feeder.set_epoch(3);
  CHECK_FALSE(feeder.report().error);
  CHECK(feeder.report().epoch == 3);
  feeder.stop();
  REQUIRE(feeder.report().error);
  CHECK(feeder.report().error->category() == Category::stalled);
}
