// Batches of one row, whose bytes are delivered where they were read, without a copy.
#include <algorithm>
#include <optional>

#include "damage.h"
#include "data.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

constexpr const char* bytes_features =
    "feature { name: 'b' dtype: BYTES length: 5 } feature { name: 'raw' dtype: BYTES } "
    "feature { name: 'none' dtype: BYTES default_value { bytes_value: 'default' } } ";

std::string text_of(const Batch& batch, const char* tensor) {
  const auto bytes = batch.at(tensor).as<const char>();
  return {bytes.begin(), bytes.end()};
}

// Checks that record `id` has five bytes that count up from `id`; see data.h.
void check_bytes(const Batch& batch) {
  std::string expected(5, '\0');
  for (size_t i = 0; i < expected.size(); i++)
    expected[i] = static_cast<char>(batch.at("id").as<const int64_t>()[0] + static_cast<int64_t>(i));
  CHECK(to_string(batch.at("b").shape) == "[1, 5]");
  CHECK(text_of(batch, "b") == expected);
  CHECK(text_of(batch, "raw.bytes") == expected);
  CHECK(batch.at("raw.offsets").as<const int64_t>()[1] == 5);
  CHECK(text_of(batch, "none.bytes") == "default");
}

}  // namespace

TEST_CASE("a row that is a batch has its bytes, in every order and for every compression") {
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    const Data data({40, 1, 30}, compression);
    for (const std::string order : {"", "shuffle { mode: BLOCK buffer_size: 20 }", "shuffle { mode: GLOBAL }"}) {
      for (const int count : {1, 2}) {
        Feeder feeder(data.pipeline(bytes_features + batch_of(count, "PAD") + order), replicas(count));
        std::vector<int64_t> ids;
        for (int epoch = 0; epoch < 2; epoch++)
          for (bool goes_on = true; goes_on;)
            for (int replica = 0; replica < count; replica++) {
              const Batch next = feeder.next(replica);
              goes_on = static_cast<bool>(next);
              if (!goes_on || next.valid_count() == 0) continue;
              check_bytes(next);
              ids.push_back(next.at("id").as<const int64_t>()[0]);
            }
        std::sort(ids.begin(), ids.end());
        REQUIRE(ids.size() == 142);
        for (size_t i = 0; i < ids.size(); i++) CHECK(ids[i] == static_cast<int64_t>(i / 2));
      }
    }
  }
}

TEST_CASE("what was lent stays while it is held, also when the feeder is gone") {
  const Data data({100});
  std::vector<Batch> held;
  {
    Feeder feeder(data.pipeline(bytes_features + batch_of(1, "DROP") +
                                "shuffle { mode: GLOBAL } parallelism { host_prefetch: 4 }"));
    for (int i = 0; i < 50; i++) feeder.next();
    for (int i = 0; i < 5; i++) held.push_back(feeder.next());
    CHECK_THROWS_WITH(feeder.next(), Catch::Contains("holds all 5 batches"));
    held.erase(held.begin());
    for (int i = 0; i < 20; i++) check_bytes(feeder.next());
    for (const Batch& batch : held) check_bytes(batch);
  }
  for (const Batch& batch : held) check_bytes(batch);
}

TEST_CASE("a row that stands in for a bad record has bytes, too") {
  const Data data({40});
  flip(data.path(0), offset_of(data.path(0), 20) + 30);
  Feeder feeder(data.pipeline(bytes_features + batch_of(1, "DROP") + "errors { on_error: SKIP_RECORD }"));
  std::vector<int64_t> ids;
  while (const Batch batch = feeder.next()) {
    CHECK(batch.at("b").size_bytes() == 5);
    if (batch.valid_count() == 0) continue;
    check_bytes(batch);
    ids.push_back(batch.at("id").as<const int64_t>()[0]);
  }
  REQUIRE(ids.size() == 39);
  CHECK(ids[20] == 21);
}

// The bad record may be the only row of its step that is not delivered, and the last of its chunk that is read.
TEST_CASE("what comes before a bad record is delivered in every order, also if a row is a batch") {
  const Data data({60}, Compression::none,
                  [](int64_t id) { return id == 20 ? wire::entry("raw", wire::int64_feature({1})) : std::string(); });
  for (const int count : {1, 2})
    for (const int seed : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
      for (const std::string order : {"BLOCK buffer_size: 20", "GLOBAL"}) {
        INFO(count << " replicas, seed " << seed << ", " << order);
        Options options = replicas(count);
        options.deliver_before_error = true;
        Feeder feeder(data.pipeline(bytes_features + batch_of(count, "DROP") +
                                    "shuffle { seed: " + std::to_string(seed) + " mode: " + order + " }"),
                      options);
        std::vector<int64_t> ids;
        std::optional<Error> error;
        for (int replica = 0; !error; replica = (replica + 1) % count) try {
            const Batch next = feeder.next(replica);
            REQUIRE(next);
            if (next.valid_count() == 0) continue;
            check_bytes(next);
            ids.push_back(next.at("id").as<const int64_t>()[0]);
          } catch (const Error& thrown) {
            error = thrown;
          }
        CHECK(error->category() == Category::wrong_dtype);
        CHECK(error->place().record == 20);
        CHECK(std::ranges::count(ids, 20) == 0);
        std::ranges::sort(ids);
        CHECK(std::ranges::adjacent_find(ids) == ids.end());
      }
}

TEST_CASE("numbers are lent only where they lie as they must") {
  TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 8; id++) {  // as the key grows, the values begin at every offset within a word
    const float values[] = {static_cast<float>(id), 0.5f};
    records.push_back(wire::example(
        wire::entry("k", wire::bytes_feature({std::string(static_cast<size_t>(id), 'k')})) +
        wire::entry("x", wire::bytes_feature({std::string(reinterpret_cast<const char*>(values), sizeof values)}))));
  }
  write_records(dir.file("x.tfrecord"), records);
  Feeder feeder(
      parse_pipeline("source { files: 'x.tfrecord' } feature { name: 'x' dtype: BYTES } "
                     "output { name: 'x' feature: 'x' decode_raw { stored: FLOAT32 shape: [2] } } "
                     "batch { global_batch_size: 1 }",
                     dir.path()));
  for (int64_t id = 0; id < 8; id++) {
    const Batch batch = feeder.next();
    CHECK(reinterpret_cast<uintptr_t>(batch.at("x").data) % sizeof(float) == 0);
    CHECK(batch.at("x").as<const float>()[0] == static_cast<float>(id));
    CHECK(batch.at("x").as<const float>()[1] == 0.5f);
  }
}
