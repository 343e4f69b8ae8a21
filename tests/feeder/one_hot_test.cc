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
        fmt::format("source {{ files: 'data.tfrecord' }} feature {{ name: 'id' dtype: INT64 }} feature {{ name: 'class' "
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
  Feeder feeder(data.pipeline("output { name: 'plain' feature: 'class' " + with +
                              "} output { name: 'changed' feature: 'class' normalize { scale: 4 mean: 1 } dtype: INT8 " +
                              with +
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
      return data.pipeline("output { name: 'v' feature: 'labels' dtype: FLOAT16 one_hot { classes: 9 off_value: 0.5 "
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
            if (values[(row * static_cast<size_t>(labels) + static_cast<size_t>(i)) * classes + static_cast<size_t>(k)] !=
                (class_of(id[row] + i) == k ? 0x3c00 : 0x3800))
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

TEST_CASE("a number that is no class: a bad record, or with ignore_outside a vector without a class") {
  const Classes data(40);
  Feeder strict(data.pipeline("output { name: 'v' feature: 'class' one_hot { classes: 9 off_value: 5 } } "
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
