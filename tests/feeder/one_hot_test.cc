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

/// Records with a class.
class Classes {
 public:
  explicit Classes(int64_t count) {
    std::vector<std::string> records;
    for (int64_t id = 0; id < count; id++)
      records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                      wire::entry("class", wire::int64_feature({class_of(id)}))));
    write_records(dir_.file("data.tfrecord"), records);
  }
  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
        "source { files: 'data.tfrecord' } feature { name: 'id' dtype: INT64 } feature { name: 'class' dtype: INT64 } "
        "output { name: 'id' feature: 'id' } " +
            more,
        dir_.path());
  }

 private:
  TempDir dir_;
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
