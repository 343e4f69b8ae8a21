// Bad records, bad files and files that change lead to an error with its place or to filler, and never to a wrong byte.
#include <unistd.h>

#include <fstream>
#include <limits>
#include <optional>

#include "damage.h"
#include "data.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

std::optional<Error> error_of_next(Feeder& feeder, int replica = 0) {
  try {
    feeder.next(replica);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

const std::string ten = "batch { global_batch_size: 10 last_batch_policy: PARTIAL }";

}  // namespace

TEST_CASE("a damaged record raises where the order reaches it") {
  const Data data({50, 50});
  const uint64_t offset = offset_of(data.path(1), 7);
  flip(data.path(1), offset + 12 + 9);
  Feeder feeder(data.pipeline(ten));
  for (int64_t step = 0; step < 5; step++) {
    Epoch got;
    add_batch(got, feeder.next());
    CHECK(got.all() == numbers(10, step * 10));
  }
  for (int again = 0; again < 2; again++) {
    const auto error = error_of_next(feeder);
    REQUIRE(error);
    CHECK(error->category() == Category::bad_data_crc);
    CHECK(error->place().file == data.path(1));
    CHECK(error->place().offset == static_cast<int64_t>(offset));
    CHECK(error->place().record == 7);
  }
}

TEST_CASE("data that is to end with an error cannot be repeated without end") {
  const Data data({50, 50});
  const uint64_t offset = offset_of(data.path(1), 7);
  flip(data.path(1), offset + 12 + 9);
  try {
    const Feeder feeder(data.pipeline(ten + "epoch { steps: 3 } "));
    FAIL("a feeder was made");
  } catch (const Error& error) {
    CHECK(error.category() == Category::bad_data_crc);
    CHECK(error.place().file == data.path(1));
    CHECK(error.place().offset == static_cast<int64_t>(offset));
    CHECK_THAT(error.message(), Catch::Contains("epoch.steps"));
  }
  Feeder feeder(data.pipeline(ten + "epoch { steps: 3 } errors { on_error: SKIP_RECORD } "));
  for (int64_t step = 0; step < 7; step++) CHECK(bool(feeder.next()) == (step % 4 != 3));
}

TEST_CASE("where it is asked for, the good rows before the error come first") {
  const Data data({50, 50});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  for (const int count : {1, 2}) {
    Options options = replicas(count);
    options.deliver_before_error = true;
    Feeder feeder(data.pipeline(ten), options);
    std::vector<int64_t> all;
    for (int step = 0; step < 6; step++)
      for (int r = 0; r < count; r++) {
        Epoch got;
        add_batch(got, feeder.next(r));
        const auto ids = got.all();
        all.insert(all.end(), ids.begin(), ids.end());
      }
    CHECK(all == numbers(57));
    for (int r = 0; r < count; r++) CHECK(error_of_next(feeder, r)->category() == Category::bad_data_crc);
  }
}

TEST_CASE("SKIP_RECORD leaves out what was bad when the data was counted") {
  const Data data({50, 50});
  flip(data.path(0), offset_of(data.path(0), 20) + 12 + 9);
  flip(data.path(1), offset_of(data.path(1), 7) + 2);  // a length: the next good record is found again
  Feeder feeder(data.pipeline(ten + "errors { on_error: SKIP_RECORD }"));
  CHECK(feeder.samples_per_epoch() == 98);
  auto wanted = numbers(100);
  wanted.erase(wanted.begin() + 57);
  wanted.erase(wanted.begin() + 20);
  for (int epoch = 0; epoch < 2; epoch++) CHECK(read_epoch(feeder).front().all() == wanted);
  const Report report = feeder.report();
  REQUIRE(report.bad_records == 2);
  CHECK(report.errors[0].category() == Category::bad_data_crc);
  CHECK(report.errors[1].category() == Category::bad_length_crc);
}

TEST_CASE("SKIP_FILE and a stride of one's own") {
  const Data data({300, 200, 100});
  flip(data.path(1), offset_of(data.path(1), 9) + 12 + 9);
  const std::string text = "shuffle { block_size: '20000' } errors { on_error: SKIP_FILE } " + batch_of(50, "DROP");
  Feeder feeder(data.pipeline(text).with("source.index.stride", "'10000'"));
  CHECK(read_epoch(feeder).front().all().size() == 400);
  CHECK_THROWS_WITH(Feeder(data.pipeline(text)),
                    Catch::Contains("not a multiple of index.stride, which is 16384 bytes"));
}

TEST_CASE("SKIP_FILE leaves out files with damage") {
  const Data data({50, 50, 20});
  flip(data.path(1), offset_of(data.path(1), 7) + 12 + 9);
  Feeder feeder(data.pipeline(ten + "errors { on_error: SKIP_FILE }"));
  auto wanted = numbers(50);
  for (int64_t id : numbers(20, 100)) wanted.push_back(id);
  CHECK(read_epoch(feeder).front().all() == wanted);
  CHECK(feeder.report().bad_records == 1);
}

TEST_CASE("too many failures end the run") {
  const Data data({50, 50});
  flip(data.path(0), offset_of(data.path(0), 3) + 12 + 9);
  flip(data.path(0), offset_of(data.path(0), 1) + 12 + 9);
  const std::string skip = ten + "errors { on_error: SKIP_RECORD ";
  CHECK_NOTHROW(Feeder(data.pipeline(skip + "max_failures: 2 }")));
  CHECK_THROWS_WITH(Feeder(data.pipeline(skip + "max_failures: 1 }")), Catch::Contains("max_failures allows 1"));
  CHECK_THROWS_WITH(Feeder(data.pipeline(skip + "max_failure_rate: 0.01 }")),
                    Catch::Contains("max_failure_rate allows 0.01"));
  CHECK_NOTHROW(Feeder(data.pipeline(skip + "max_failure_rate: 0.02 }")));
}

TEST_CASE("a record that does not parse: an error, or filler that changes no count") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 100; id++) records.push_back(sample(id));
  records[42] = wire::example(wire::entry("id", wire::float_feature({1})));
  records[43] = "\x0a\xff";
  records[99] = wire::example("");
  write_records(dir.file("a"), records);
  const std::string text = "source { files: 'a' } feature { name: 'id' dtype: INT64 } " + ten;
  {
    Feeder feeder(parse_pipeline(text, dir.path()));
    for (int step = 0; step < 4; step++) CHECK(feeder.next());
    const auto error = error_of_next(feeder);
    REQUIRE(error);
    CHECK(error->category() == Category::wrong_dtype);
    CHECK(error->place().record == 42);
    CHECK(error->place().feature == "id");
    CHECK(error->place().offset == static_cast<int64_t>(offset_of(dir.file("a"), 42)));
  }
  Feeder feeder(parse_pipeline(text + "errors { on_error: SKIP_RECORD }", dir.path()));
  CHECK(feeder.steps_per_epoch() == 10);
  const Epoch got = read_epoch(feeder).front();
  read_epoch(feeder);  // meets the same bad records again
  auto wanted = numbers(100);
  for (const int bad : {99, 43, 42}) wanted.erase(wanted.begin() + bad);
  CHECK(got.all() == wanted);
  CHECK(got.rows == std::vector<int64_t>(10, 10));
  CHECK(feeder.report().filler_rows == 6);
  CHECK(feeder.report().bad_records == 3);
  CHECK(feeder.report().errors.size() == 3);
  CHECK_THROWS_WITH(read_epoch(*std::make_unique<Feeder>(
                        parse_pipeline(text + "errors { on_error: SKIP_RECORD max_failures: 2 }", dir.path()))),
                    Catch::Contains("max_failures allows 2"));
}

TEST_CASE("filler is the nearest good row of its batch, from whatever file, and zeros where a batch has none") {
  const TempDir dir;
  write_records(dir.file("a"), {sample(1), "\xff", sample(3), "\xff", "\xff"});
  write_records(dir.file("b"), {"\xff"});
  const Pipeline pipeline = parse_pipeline(
      "source { files: 'a' files: 'b' } feature { name: 'id' dtype: INT64 } feature { name: 'b' dtype: "
      "BYTES length: 5 }"
      "batch { global_batch_size: 6 } errors { on_error: SKIP_RECORD }",
      dir.path());
  Feeder feeder(pipeline);
  const auto batch = feeder.next();
  REQUIRE(batch);
  const auto ids = batch.at("id").as<int64_t>();
  CHECK(std::vector<int64_t>(ids.begin(), ids.end()) == std::vector<int64_t>{1, 1, 3, 3, 3, 3});
  CHECK(batch.at("b").as<uint8_t>()[5 * 5 + 4] == 3 + 4);
  const auto valid = batch.at("@valid").as<uint8_t>();
  CHECK(std::vector<int>(valid.begin(), valid.end()) == std::vector<int>{1, 0, 1, 0, 0, 0});

  Feeder one_by_one(pipeline.with("batch.global_batch_size", "1"));
  for (const int64_t id : {1, 0, 3, 0, 0, 0}) {
    const auto row = one_by_one.next();
    CHECK(row.at("id").as<int64_t>()[0] == id);
    CHECK(row.at("b").as<uint8_t>()[4] == (id == 0 ? 0 : id + 4));
  }
}

TEST_CASE("an INT64 formula keeps all digits, also where other formulas read it") {
  const TempDir dir;
  const std::vector<int64_t> values = {9007199254740993,
                                       (int64_t{1} << 62) + 1,
                                       std::numeric_limits<int64_t>::max(),
                                       std::numeric_limits<int64_t>::min() + 5,
                                       -9007199254740993,
                                       0};
  std::vector<std::string> records;
  for (const int64_t value : values) records.push_back(wire::example(wire::entry("i", wire::int64_feature({value}))));
  write_records(dir.file("a"), records);
  Feeder feeder(parse_pipeline(
      "source { files: 'a' } feature { name: 'i' dtype: INT64 } "
      "output { name: 'same' dtype: INT64 expression { formula: 'i' } } "
      "output { name: 'known' dtype: INT64 expression { formula: 'if(i == 0, -1, i)' } } "
      "output { name: 'real' expression { formula: 'i' } } output { name: 'third' dtype: FLOAT32 expression { formula: "
      "'i - mod(i, 3)' } } output { name: 'again' dtype: INT64 expression { formula: 'if(out.same > 0, i, 0)' } } "
      "batch { global_batch_size: 6 }",
      dir.path()));
  const auto batch = feeder.next();
  for (size_t row = 0; row < values.size(); row++) {
    const int64_t value = values[row];
    CHECK(batch.at("same").as<int64_t>()[row] == value);
    CHECK(batch.at("known").as<int64_t>()[row] == (value == 0 ? -1 : value));
    CHECK(batch.at("again").as<int64_t>()[row] == std::max<int64_t>(value, 0));
    CHECK(batch.at("real").as<double>()[row] == static_cast<double>(value));
    CHECK(batch.at("third").as<float>()[row] == static_cast<float>(value - (value % 3 + 3) % 3));
  }
}

TEST_CASE("a byte that changes after it was counted is never delivered") {
  const Data data({30000});
  const uint64_t offset = offset_of(data.path(0), 29000);
  HiddenDamage damage(data.path(0));  // feeders go on reading while it changes the file
  SECTION("it raises") {
    Feeder feeder(data.pipeline("batch { global_batch_size: 1000 }"));
    REQUIRE(feeder.next());
    damage.flip(offset + 12 + 9);
    std::optional<Error> error;
    for (int step = 1; step < 2000 && !error; step++) {
      try {
        const auto batch = feeder.next();
        if (!batch) continue;
        const auto ids = batch.at("id").as<int64_t>();
        for (size_t i = 0; i < ids.size(); i++) REQUIRE(ids[i] == static_cast<int64_t>(batch.step() * 1000 + i));
      } catch (const Error& raised) {
        error = raised;
      }
    }
    REQUIRE(error);
    CHECK(error->category() == Category::bad_data_crc);
    CHECK(error->place().record == 29000);
  }
  SECTION("or becomes filler") {
    Feeder feeder(data.pipeline("batch { global_batch_size: 1000 } errors { on_error: SKIP_RECORD }"));
    REQUIRE(feeder.next());
    damage.flip(offset + 12 + 9);
    for (int step = 1; step < 2000 && feeder.report().filler_rows == 0; step++)
      if (const auto batch = feeder.next())
        for (size_t i = 0; i < 1000; i++)
          if (batch.at("@valid").as<uint8_t>()[i])
            REQUIRE(batch.at("id").as<int64_t>()[i] == static_cast<int64_t>(batch.step() * 1000 + i));
    CHECK(feeder.report().filler_rows > 0);
  }
  SECTION("a damaged length loses more") {
    Feeder feeder(data.pipeline("batch { global_batch_size: 1000 } errors { on_error: SKIP_RECORD }"));
    REQUIRE(feeder.next());
    damage.flip(offset + 2);
    for (int step = 1; step < 2000 && feeder.report().filler_rows == 0; step++)
      if (const auto batch = feeder.next())
        for (size_t i = 0; i < 1000; i++)
          if (batch.at("@valid").as<uint8_t>()[i])
            REQUIRE(batch.at("id").as<int64_t>()[i] == static_cast<int64_t>(batch.step() * 1000 + i));
    CHECK(feeder.report().filler_rows > 0);
  }
}

TEST_CASE("a length that turns bad after it was counted costs the same few records wherever a feed begins") {
  const Data data({100});
  const Pipeline pipeline =
      data.pipeline(batch_of(10, "DROP") + "errors { on_error: SKIP_RECORD }").with("source.index", "stride: '1KiB'");
  { const Feeder keeps_the_index(pipeline); }
  flip(data.path(0), offset_of(data.path(0), 35) + 2);
  Feeder unbroken(pipeline);
  Epoch epoch;
  std::vector<std::string> states;
  for (int step = 0; step < 10; step++) {
    states.push_back(unbroken.get_state());
    add_batch(epoch, unbroken.next());
  }
  CHECK(epoch.ids[3] == numbers(5, 30));
  CHECK(epoch.ids[5] == numbers(10, 50));
  for (size_t step = 0; step < states.size(); step++) {
    Feeder resumed(pipeline);
    resumed.set_state(states[step]);
    Epoch one;
    add_batch(one, resumed.next());
    CHECK(one.ids[0] == epoch.ids[step]);
  }
}

TEST_CASE("a damaged record does not take the names from the error of a record that lacks a feature") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 20; id++) records.push_back(sample(id));
  records[7] = wire::example(wire::entry("idd", wire::int64_feature({7})));
  write_records(dir.file("a"), records);
  const Pipeline pipeline = parse_pipeline(
      "source { files: 'a' index { dir: 'indexes' } } feature { name: 'id' dtype: "
      "INT64 } errors { on_error: SKIP_RECORD } " +
          batch_of(10, "DROP"),
      dir.path());
  { const Feeder keeps_the_index(pipeline); }
  flip(dir.file("a"), offset_of(dir.file("a"), 3) + 12 + 9);
  Feeder feeder(pipeline);
  read_epoch(feeder);
  const Report report = feeder.report();
  REQUIRE(report.errors.size() >= 2);
  CHECK(report.errors[0].place().record == 3);
  CHECK(report.errors[1].place().record == 7);
  CHECK_THAT(report.errors[1].message(), Catch::Contains("'idd'"));
}

TEST_CASE("a file that shrinks while it is fed is an error") {
  const Data data({30000});
  Feeder feeder(data.pipeline("batch { global_batch_size: 1000 }"));
  REQUIRE(feeder.next());
  REQUIRE(truncate(data.path(0).c_str(), 100000) == 0);
  std::optional<Error> error;
  for (int step = 1; step < 2000 && !error; step++) error = error_of_next(feeder);
  REQUIRE(error);
  CHECK(error->category() == Category::io_error);
  CHECK(error->place().file == data.path(0));
}

TEST_CASE("integer overflow in a formula is an error of its row") {
  const TempDir dir;
  write_records(dir.file("a"),
                {sample(1), wire::example(wire::entry("id", wire::int64_feature({INT64_MAX}))), sample(3)});
  const std::string text =
      "source { files: 'a' } feature { name: 'id' dtype: INT64 } output { name: 'id' feature: 'id' }"
      "output { name: 'y' expression { formula: 'id + 1' } } batch { global_batch_size: 3 }";
  Feeder raises(parse_pipeline(text, dir.path()));
  const auto error = error_of_next(raises);
  REQUIRE(error);
  CHECK(error->category() == Category::wrong_value);
  CHECK(error->place().record == 1);
  CHECK(error->place().feature == "y");
  Feeder skips(parse_pipeline(text + "errors { on_error: SKIP_RECORD }", dir.path()));
  const auto batch = skips.next();
  REQUIRE(batch);
  CHECK(batch.valid_count() == 2);
  CHECK(batch.at("y").as<double>()[2] == 4);
}

TEST_CASE("a plan over the limit is refused, with values that fit") {
  const Data data({2000});
  const std::string text =
      "feature { name: 'x' dtype: FLOAT32 shape: 3 } memory { limit: '2MiB' } batch { global_batch_size: ";
  std::string message;
  try {
    Feeder feeder(data.pipeline(text + "200000 last_batch_policy: PAD }"));
  } catch (const Error& error) {
    message = error.message();
  }
  INFO(message);
  const auto number_behind = [&](const char* words) {
    const size_t at = message.find(words);
    REQUIRE(at != std::string::npos);
    return message.substr(at + strlen(words),
                          message.find_first_not_of("0123456789", at + strlen(words)) - at - strlen(words));
  };
  const std::string rows = number_behind("batch of at most ");
  CHECK_NOTHROW(Feeder(data.pipeline(text + rows + " last_batch_policy: PAD }")));
  const std::string limit = number_behind("at least \"");
  CHECK_NOTHROW(Feeder(data.pipeline(text + "200000 last_batch_policy: PAD }").with("memory.limit", limit + "MiB")));
}

TEST_CASE("a batch that the replicas cannot share is refused, with the nearest sizes") {
  const Data data({10});
  CHECK_THROWS_WITH(Feeder(data.pipeline("batch { global_batch_size: 10 }"), replicas(4)), Catch::Contains("8 or 12"));
  CHECK_THROWS_WITH(Feeder(data.pipeline("batch { global_batch_size: 3 }"), replicas(4)), Catch::Contains(" 4"));
  CHECK_NOTHROW(Feeder(data.pipeline("batch { batch_size_per_replica: 2 }"), replicas(4)));
}

TEST_CASE("one failure more than is allowed ends the feed, after the batches before it") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 50'000; id++) records.push_back(sample(id));
  for (const size_t bad : {49'001, 49'005, 49'006}) records[bad] = "\xff";
  write_records(dir.file("a"), records);
  for (int i = 0; i < 3; i++) {
    Feeder feeder(
        parse_pipeline("source { files: 'a' } feature { name: 'id' dtype: INT64 } batch { global_batch_size: "
                       "1000 } errors { on_error: SKIP_RECORD max_failures: 2 }",
                       dir.path()));
    for (int step = 0; step < 49; step++) REQUIRE(feeder.next());
    const auto error = error_of_next(feeder);
    REQUIRE(error);
    CHECK(error->place().record == 49'006);
    CHECK(error->message().find("max_failures allows 2") != std::string::npos);
  }
}

TEST_CASE("bad records that were not known before count for the rate, too, and each is told of, up to a hundred") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 5000; id++) records.push_back(id % 20 == 3 ? "\xff" : sample(id));
  write_records(dir.file("a"), records);
  const std::string text =
      "source { files: 'a' } feature { name: 'id' dtype: INT64 } batch { global_batch_size: 100 } "
      "errors { on_error: SKIP_RECORD ";
  {
    Feeder feeder(parse_pipeline(text + "max_failure_rate: 0.05 }", dir.path()));
    for (int epoch = 0; epoch < 2; epoch++) CHECK(read_epoch(feeder).front().all().size() == 4750);
    const Report report = feeder.report();
    CHECK(report.filler_rows == 500);
    CHECK(report.bad_records == 250);
    REQUIRE(report.errors.size() == 100);
    for (size_t i = 0; i < 100; i++) CHECK(report.errors[i].place().record == static_cast<int64_t>(20 * i + 3));
  }
  Feeder feeder(parse_pipeline(text + "max_failure_rate: 0.0499 }", dir.path()));
  for (int step = 0; step < 49; step++) REQUIRE(feeder.next());
  const auto error = error_of_next(feeder);
  REQUIRE(error);
  CHECK(error->place().record == 4983);
  CHECK_THAT(error->message(),
             Catch::Contains("0.05 of the records are bad, but errors.max_failure_rate allows 0.0499"));
}

TEST_CASE("damage in records that are no samples counts for the rate by their share only") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 100; id++) records.push_back(id == 95 ? "\xff" : sample(id));
  write_records(dir.file("a"), records);
  flip(dir.file("a"), offset_of(dir.file("a"), 3) + 12 + 9);
  Feeder feeder(parse_pipeline(
      "source { files: 'a' range: '90%:100%' } feature { name: 'id' dtype: INT64 } batch { global_batch_size: 10 } "
      "errors { on_error: SKIP_RECORD max_failure_rate: 0.1 }",
      dir.path()));
  CHECK(read_epoch(feeder).front().all().size() == 9);
  CHECK(feeder.report().bad_records == 2);
}

TEST_CASE("SKIP_FILE leaves out files while counting; a record that goes bad later is filler") {
  const TempDir dir;
  for (const char* name : {"a", "b", "c"}) write_records(dir.file(name), std::vector<std::string>(100, sample(1)));
  flip(dir.file("b"), offset_of(dir.file("b"), 7) + 12 + 9);
  flip(dir.file("b"), offset_of(dir.file("b"), 5) + 12 + 9);
  auto records = std::vector<std::string>(100, sample(2));
  records[42] = "\xff";
  write_records(dir.file("c"), records);
  const auto pipeline = [&](const std::string& more) {
    return parse_pipeline(
        "source { files: '*' } feature { name: 'id' dtype: INT64 } batch { global_batch_size: 10 } "
        "errors { on_error: SKIP_FILE " +
            more + " }",
        dir.path());
  };
  CHECK_THROWS_WITH(Feeder(pipeline("max_failure_rate: 0.3")), Catch::Contains("0.333 of the files are bad"));
  CHECK_NOTHROW(Feeder(pipeline("max_failures: 1")));
  Feeder feeder(pipeline("max_failure_rate: 0.34 max_failures: 2"));
  CHECK(feeder.samples_per_epoch() == 200);
  for (int epoch = 0; epoch < 2; epoch++) CHECK(read_epoch(feeder).front().all().size() == 199);
  const Report report = feeder.report();
  CHECK(report.bad_records == 2);
  REQUIRE(report.errors.size() == 2);
  CHECK(report.errors[0].place().record == 5);
  CHECK(report.errors[1].place().record == 42);
  REQUIRE(report.last_epoch);
  CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
  Feeder strict(pipeline("max_failures: 1"));
  CHECK_THROWS_WITH(read_epoch(strict), Catch::Contains("max_failures allows 1"));
}

TEST_CASE("an epoch of no samples that repeats without end is refused") {
  const Data data({0});
  CHECK_THROWS_WITH(Feeder(data.pipeline(ten + "epoch { repeat: -1 }")),
                    Catch::Contains("but the data has no samples"));
  const Data some({10});
  CHECK_THROWS_WITH(Feeder(some.pipeline(ten + "epoch { repeat: 9223372036854775807 }")),
                    Catch::Contains("than can be counted"));
}

TEST_CASE("an epoch of so many steps that their samples cannot be counted is refused") {
  const Data data({10});
  CHECK_THROWS_WITH(
      Feeder(data.pipeline("batch { global_batch_size: 8388608 } epoch { steps: 1099511627776 }")),
      Catch::Contains("epoch.steps: 1099511627776 steps of 8388608 samples have more samples than can be counted; "
                      "write at most 549755813886 ["));
}

TEST_CASE("sizes beyond all memory are refused, not wrapped") {
  const Data data({10});
  for (const char* feature : {"kind: VARIABLE max_values: 2147483647", "kind: RAGGED max_values: 2147483647",
                              "kind: FIXED_SEQUENCE max_values: 2147483647"}) {
    INFO(feature);
    const auto plan = [&](const std::string& more) {
      Feeder feeder(data.pipeline("feature { name: 'v' dtype: INT64 " + std::string(feature) + more +
                                  " } batch { global_batch_size: 2147483640 } memory { limit: '64MiB' }"));
    };
    CHECK_THROWS_WITH(plan(""), Catch::Contains("memory.limit"));
  }
}

TEST_CASE("a plan that does not fit is refused with a setting that its output can have") {
  const Data data({10});
  const auto plan = [&](const std::string& feature) {
    Feeder feeder(data.pipeline("feature { name: 'v' " + feature +
                                " } output { name: 'v' feature: 'v' } batch { "
                                "global_batch_size: 2147483640 } memory { limit: '64MiB' }"));
  };
  const auto says = Catch::Contains("memory.limit: the feed needs");
  const auto max_values = Catch::Contains("max_values for the feature of output 'v'");
  const auto length = Catch::Contains("all values of output 'v' have one length, set it as feature.length");
  CHECK_THROWS_WITH(plan("dtype: INT64 shape: 0"), says && !max_values && !length);  // most of it is the valid mask
  CHECK_THROWS_WITH(plan("dtype: BYTES"), says && length && !max_values);
  CHECK_THROWS_WITH(plan("dtype: INT64 kind: FIXED_SEQUENCE"), says && max_values && !length);
}

TEST_CASE("damage takes no memory of the batches") {
  const TempDir dir;
  write_records(dir.file("a"), std::vector<std::string>(2000, sample(5)));
  write_records(dir.file("b"), std::vector<std::string>(2000, sample(5)));
  std::ifstream b(dir.file("b"), std::ios::binary);
  std::ofstream a(dir.file("a"), std::ios::binary | std::ios::app);
  a << std::string(100 << 20, '\0') << b.rdbuf();
  a.close();
  Feeder feeder(parse_pipeline(
      "source { files: 'a' record_limit: '1MiB' } feature { name: 'v' dtype: INT64 kind: VARIABLE } batch { "
      "global_batch_size: 16 } errors { on_error: SKIP_RECORD } memory { limit: '64MiB' }",
      dir.path()));
  CHECK(feeder.samples_per_epoch() == 4000);
  int64_t rows = 0;
  while (const Batch batch = feeder.next()) rows += batch.valid_count();
  CHECK(rows == 4000);
}
