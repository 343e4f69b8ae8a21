// Vectors of classes through the whole feed.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "data.h"
#include "distributed.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

constexpr int64_t classes = 9;

/// The class of a record. Every seventh record has none: a number below or above the classes.
int64_t class_of(int64_t id) { return id % 7 != 6 ? id * 5 % classes : id % 2 == 0 ? -1 - id : classes + id; }
bool is_class(int64_t number) { return number >= 0 && number < classes; }

/// Records with a class, and with as many labels as `labels` says, of which number i is of class_of(id + i).
class Classes {
 public:
  explicit Classes(int64_t count, int64_t labels = 2) : labels_(labels) {
    std::vector<std::string> records;
    for (int64_t id = 0; id < count; id++) {
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < labels; i++) numbers.push_back(class_of(id + i));
      records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                      wire::entry("class", wire::int64_feature({class_of(id)})) +
                                      wire::entry("labels", wire::int64_feature(numbers))));
    }
    write_records(dir_.file("data.tfrecord"), records);
  }
  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
        fmt::format(
            "source {{ files: 'data.tfrecord' }} feature {{ name: 'id' dtype: INT64 }} feature {{ name: 'class' "
            "dtype: INT64 }} feature {{ name: 'labels' dtype: INT64 shape: [{}, 2] }} output {{ name: 'id' "
            "feature: 'id' }} ",
            labels_ / 2) +
            more,
        dir_.path());
  }

 private:
  TempDir dir_;
  int64_t labels_;
};

}  // namespace

TEST_CASE("on_value and off_value are the numbers of a vector, before it is normalised and cast") {
  const Classes data(60);
  const std::string with = "one_hot { classes: 9 on_value: 0.75 off_value: -0.25 ignore_outside: true } ";
  Feeder feeder(
      data.pipeline("output { name: 'plain' feature: 'class' " + with +
                    "} output { name: 'changed' feature: 'class' normalize { scale: 4 mean: 1 } dtype: INT8 " + with +
                    "} output { name: 'large' feature: 'class' dtype: INT64 one_hot { classes: 9 on_value: "
                    "9007199254740992 off_value: -3 ignore_outside: true } } " +
                    batch_of(20, "DROP")));
  int64_t seen = 0;
  while (const Batch batch = feeder.next())
    for (size_t row = 0; row < 20; row++, seen++)
      for (size_t k = 0; k < classes; k++) {
        const bool is_it = class_of(seen) == static_cast<int64_t>(k);
        REQUIRE(batch.at("plain").as<float>()[row * classes + k] == (is_it ? 0.75f : -0.25f));
        REQUIRE(batch.at("changed").as<int8_t>()[row * classes + k] == (is_it ? 2 : -2));
        REQUIRE(batch.at("large").as<int64_t>()[row * classes + k] == (is_it ? int64_t{1} << 53 : -3));
      }
  CHECK(seen == 60);
  CHECK(feeder.report().bad_records == 0);
}

TEST_CASE("several values become a vector each, in every order, and where rows travel") {
  for (const int64_t labels : {2, 300}) {  // the writer is given 256 values at a time
    const Classes data(60, labels);
    const auto pipeline = [&](const std::string& more) {
      return data.pipeline(
          "output { name: 'v' feature: 'labels' dtype: FLOAT16 one_hot { classes: 9 off_value: 0.5 "
          "ignore_outside: true } } " +
          more + batch_of(12, "DROP"));
    };
    const auto check = [&](const Batch& batch, std::vector<int64_t>& ids) {
      const auto id = batch.at("id").as<int64_t>();
      const auto values = batch.at("v").as<uint16_t>();
      for (size_t row = 0; row < id.size(); row++) {
        ids.push_back(id[row]);
        for (int64_t i = 0; i < labels; i++)
          for (int64_t k = 0; k < classes; k++)
            if (values[(row * static_cast<size_t>(labels) + static_cast<size_t>(i)) * classes +
                       static_cast<size_t>(k)] != (class_of(id[row] + i) == k ? 0x3c00 : 0x3800))
              throw std::logic_error(fmt::format("the vectors of record {} are wrong", id[row]));
      }
    };
    for (const std::string order : {"", "shuffle { mode: GLOBAL } ", "window { size: 2 } "}) {
      INFO(labels << " labels, " << order);
      Feeder feeder(pipeline(order));
      std::vector<int64_t> ids;
      while (const Batch batch = feeder.next()) {
        if (order.empty()) CHECK(batch.at("v").shape == Shape{12, labels / 2, 2, classes});
        check(batch, ids);
      }
      std::ranges::sort(ids);
      CHECK(ids.size() == (order.starts_with("window") ? 48 : 60));
    }
    for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"}) {
      INFO(labels << " labels, " << mode);
      std::vector<int64_t> ids[2];
      const auto thrown = on_communicators(2, [&](int rank, Ends end) {
        Feeder feeder(pipeline("distribute { mode: " + mode + " } "), of_rank(std::move(end), 1));
        while (const Batch batch = feeder.next()) check(batch, ids[rank]);
      });
      CHECK(thrown == nothing_thrown(2));
      CHECK(ids[0].size() == (mode == "REPLICATE" ? 60 : 30));
    }
  }
  const Classes data(8, 4);
  Feeder strict(data.pipeline("output { name: 'v' feature: 'labels' one_hot { classes: 9 } } " + batch_of(1, "DROP")));
  try {
    while (strict.next()) {
    }
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.category() == Category::wrong_value);
    CHECK_THAT(error.message(), Catch::StartsWith("value 3: the class is -7, but one_hot.classes is 9"));
    CHECK((error.place().record == 3 && error.place().feature == "labels"));
  }
}

TEST_CASE("lists of any length become one vector each: multi-hot, as Keras' CategoryEncoding") {
  const TempDir dir;
  const auto labels_of = [](int64_t id, int64_t lost) {
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < id * 3 % 8; i++) labels.push_back((id + i * i) % classes);  // some come twice
    if (id == lost) labels.push_back(id % 2 == 0 ? -1 : classes);
    return labels;
  };
  const auto write = [&](int64_t lost) {
    std::vector<std::string> records;
    for (int64_t id = 0; id < 90; id++) {
      const std::vector<int64_t> labels = labels_of(id, lost);
      records.push_back(
          wire::example(wire::entry("id", wire::int64_feature({id})) +
                        (labels.empty() && id % 16 == 0 ? "" : wire::entry("labels", wire::int64_feature(labels)))));
    }
    write_records(dir.file("data"), records);
  };
  const auto pipeline = [&](const std::string& more) {
    return parse_pipeline(
        "source { files: 'data' } feature { name: 'id' dtype: INT64 } feature { name: 'labels' dtype: INT64 kind: "
        "RAGGED "
        "} output { name: 'id' feature: 'id' } output { name: 'v' feature: 'labels' one_hot { classes: 9 } } output { "
        "name: 'n' feature: 'labels' dtype: INT8 one_hot { classes: 9 on_value: 3 off_value: -1 ignore_outside: true } "
        "normalize { scale: 2 } } " +
            more,
        dir.path());
  };
  const auto check = [&](const Batch& batch, std::vector<int64_t>& ids, int64_t lost) {
    const auto valid = batch.at("@valid").as<uint8_t>();
    const auto id = batch.at("id").as<int64_t>();
    const auto v = batch.at("v").as<float>();
    const auto n = batch.at("n").as<int8_t>();
    for (size_t row = 0; row < id.size(); row++) {
      if (!valid[row]) continue;
      ids.push_back(id[row]);
      const std::vector<int64_t> labels = labels_of(id[row], lost);
      for (int64_t k = 0; k < classes; k++) {
        const bool has = std::ranges::find(labels, k) != labels.end();
        const size_t at = row * classes + static_cast<size_t>(k);
        if (v[at] != (has ? 1 : 0) || n[at] != (has ? 6 : -2))
          throw std::logic_error(fmt::format("the vector of record {} is wrong", id[row]));
      }
    }
  };
  write(-1);
  for (const std::string order :
       {"", "shuffle { mode: GLOBAL } ", "shuffle { buffer_size: 30 } ", "window { size: 3 } "})
    for (const int count : {1, 2}) {
      INFO(order << count << " replicas");
      Feeder feeder(pipeline(order + batch_of(10, "PAD")), replicas(count));
      std::vector<int64_t> ids;
      for (bool ended = false; !ended;)
        for (int replica = 0; replica < count; replica++) {
          const Batch batch = feeder.next(replica);
          if ((ended = !batch)) continue;
          const Shape shape =
              order.starts_with("window") ? Shape{batch.rows(), 3, classes} : Shape{batch.rows(), classes};
          CHECK((batch.at("v").shape == shape && batch.at("n").shape == shape));
          check(batch, ids, -1);
        }
      std::ranges::sort(ids);
      CHECK(ids == numbers(90));
      CHECK(feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds);
    }
  for (const std::string mode : {"REPLICATE", "SCATTER"}) {
    INFO(mode);
    std::vector<int64_t> ids[2];
    const auto thrown = on_communicators(2, [&](int rank, Ends end) {
      Feeder feeder(pipeline("distribute { mode: " + mode + " } " + batch_of(10, "DROP")), of_rank(std::move(end), 1));
      while (const Batch batch = feeder.next()) check(batch, ids[rank], -1);
    });
    CHECK(thrown == nothing_thrown(2));
    CHECK(ids[0].size() == (mode == "REPLICATE" ? 90 : 45));
  }
  for (const int64_t lost : {40, 41}) {
    INFO("lost: " << lost);
    write(lost);
    Feeder feeder(pipeline("errors { on_error: SKIP_RECORD } " + batch_of(10, "PAD")));
    const TriedRecords tried = feeder.try_records(90);
    REQUIRE(tried.errors.size() == 1);
    std::vector<int64_t> ids;
    while (const Batch batch = feeder.next()) check(batch, ids, lost);
    CHECK(ids.size() == 89);
    const Report report = feeder.report();
    REQUIRE(report.errors.size() == 1);
    CHECK((report.errors[0].place().record == lost && report.errors[0].place().feature == "labels"));
    CHECK(report.errors[0].message() ==
          fmt::format("the class is {}, but one_hot.classes is 9, which allows 0 to 8; correct one_hot.classes or the "
                      "data, or write one_hot.ignore_outside",
                      lost == 40 ? -1 : 9));
    CHECK(tried.errors[0].message() == report.errors[0].message());
  }
}

TEST_CASE("multi-hot vectors of records that are found bad while feeding are filler") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 12; id++)
    records.push_back(
        wire::example(wire::entry("id", id % 3 == 1 ? wire::float_feature({1}) : wire::int64_feature({id})) +
                      wire::entry("labels", wire::int64_feature({id % 3, id % 5}))));
  write_records(dir.file("data"), records);
  for (const int64_t rows : {1, 4}) {
    INFO(rows << " rows");
    Feeder feeder(
        parse_pipeline("source { files: 'data' } feature { name: 'id' dtype: INT64 } feature { name: 'labels' "
                       "dtype: INT64 kind: VARIABLE } output { name: 'id' feature: 'id' } output { name: 'v' "
                       "feature: 'labels' one_hot { classes: 5 } } errors { on_error: SKIP_RECORD } " +
                           batch_of(rows, "DROP"),
                       dir.path()));
    int64_t valid = 0;
    while (const Batch batch = feeder.next()) {
      valid += batch.valid_count();
      const auto id = batch.at("id").as<int64_t>();
      const auto v = batch.at("v").as<float>();
      for (size_t row = 0; row < id.size(); row++)
        for (int64_t k = 0; k < 5; k++) {
          const bool is_zeros = batch.valid_count() == 0;
          const bool has = !is_zeros && (k == id[row] % 3 || k == id[row] % 5);
          REQUIRE(v[row * 5 + static_cast<size_t>(k)] == (has ? 1 : 0));
        }
    }
    CHECK(valid == 8);
  }
}

TEST_CASE("a number that is no class: a bad record, or with ignore_outside a vector without a class") {
  const Classes data(40);
  Feeder strict(
      data.pipeline("output { name: 'v' feature: 'class' one_hot { classes: 9 off_value: 5 } } "
                    "errors { on_error: SKIP_RECORD } " +
                    batch_of(40, "PAD")));
  const Batch skipped = strict.next();
  int64_t good = 0;
  for (int64_t id = 0; id < 40; id++) good += is_class(class_of(id));
  CHECK((good < 40 && skipped.valid_count() == good));
  CHECK(strict.report().bad_records == static_cast<uint64_t>(40 - good));
  CHECK(strict.report().errors[0].message() ==
        "the class is -7, but one_hot.classes is 9, which allows 0 to 8; correct one_hot.classes or the data, or write "
        "one_hot.ignore_outside");
  Feeder lenient(data.pipeline("output { name: 'v' feature: 'class' one_hot { classes: 9 ignore_outside: true } } " +
                               batch_of(40, "DROP")));
  const Batch all = lenient.next();
  CHECK(all.valid_count() == 40);
  const auto values = all.at("v").as<float>();
  for (int64_t id = 0; id < 40; id++)
    for (int64_t k = 0; k < classes; k++)
      REQUIRE(values[static_cast<size_t>(id * classes + k)] == (class_of(id) == k ? 1 : 0));
  CHECK(lenient.try_records(40).failed == 0);
}
