// SequenceExamples through the whole feed: in every order, in windows, between ranks, and with bad records.
#include <algorithm>
#include <map>

#include "distributed.h"
#include "sequence_data.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;
using Catch::Contains;

namespace {

/// Checks every row of a batch of features as they are. Filler has no steps.
void check_rows(const Batch& batch, std::vector<int64_t>& ids) {
  const auto id = batch.at("id").as<int64_t>();
  const auto valid = batch.at("@valid").as<uint8_t>();
  const auto rows = static_cast<size_t>(batch.rows());
  const TensorView pairs = batch.at("pairs"), frames = batch.at("frames");
  const auto numbers = batch.at("numbers.values").as<int64_t>();
  const auto step_splits = batch.at("numbers.step_splits").as<int64_t>();
  const auto row_splits = batch.at("numbers.row_splits").as<int64_t>();
  const auto text = batch.at("strings.bytes").as<char>();
  const auto offsets = batch.at("strings.offsets").as<int64_t>();
  const auto string_steps = batch.at("strings.step_splits").as<int64_t>();
  const auto string_rows = batch.at("strings.row_splits").as<int64_t>();
  REQUIRE(pairs.shape.rank() == 3);
  REQUIRE(frames.shape == Shape{batch.rows(), 2, 4});
  REQUIRE(row_splits.size() == rows + 1);
  REQUIRE(string_rows.size() == rows + 1);
  REQUIRE(static_cast<size_t>(row_splits[rows]) + 1 == step_splits.size());
  REQUIRE(static_cast<size_t>(step_splits.back()) == numbers.size());
  REQUIRE(static_cast<size_t>(offsets.back()) == text.size());
  const auto longest = static_cast<size_t>(pairs.shape[1]);
  size_t widest = 0;
  for (size_t r = 0; r < rows; r++) {
    const int64_t steps = valid[r] ? id[r] % 5 : 0, lists = valid[r] ? id[r] % 4 : 0,
                  strings = valid[r] ? id[r] % 3 : 0;
    if (valid[r]) ids.push_back(id[r]);
    widest = std::max(widest, static_cast<size_t>(steps));
    for (size_t s = 0; s < longest; s++) {
      const float* pair = pairs.as<float>().data() + 2 * (r * longest + s);
      const bool own = static_cast<int64_t>(s) < steps;
      CHECK(pair[0] == (own ? static_cast<float>(id[r]) : -1));
      CHECK(pair[1] == (own ? static_cast<float>(s) : -1));
    }
    REQUIRE(row_splits[r + 1] - row_splits[r] == lists);
    for (int64_t s = 0; s < lists; s++) {
      const auto step = static_cast<size_t>(row_splits[r] + s);
      REQUIRE(step_splits[step + 1] - step_splits[step] == s);
      for (int64_t i = 0; i < s; i++)
        CHECK(numbers[static_cast<size_t>(step_splits[step] + i)] == 100 * id[r] + 10 * s + i);
    }
    REQUIRE(string_rows[r + 1] - string_rows[r] == strings);
    for (int64_t s = 0; s < strings; s++) {
      const auto step = static_cast<size_t>(string_rows[r] + s);
      REQUIRE(string_steps[step + 1] - string_steps[step] == s + 1);
      for (auto i = static_cast<size_t>(string_steps[step]); i < static_cast<size_t>(string_steps[step + 1]); i++)
        CHECK(std::string(text.data() + offsets[i], text.data() + offsets[i + 1]) == std::to_string(id[r]));
    }
    if (valid[r])
      CHECK(host_bytes(frames).substr(8 * r, 8) == std::string(4, static_cast<char>('a' + id[r] % 26)) +
                                                       std::string(4, static_cast<char>('a' + (id[r] + 1) % 26)));
  }
  CHECK(longest == widest);
}

std::vector<int64_t> fed_ids(Feeder& feeder) {
  std::vector<int64_t> ids;
  for (bool ended = false; !ended;)
    for (int replica = 0; replica < feeder.replicas(); replica++) {
      const Batch batch = feeder.next(replica);
      ended = !batch;
      if (batch) check_rows(batch, ids);
    }
  return ids;
}

}  // namespace

TEST_CASE("SequenceExamples: every kind of feature, in every order, for any number of replicas") {
  const SequenceData data({70, 1, 0, 60});
  for (const std::string& order :
       {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 30 } "),
        std::string("shuffle { mode: GLOBAL } "), std::string("shuffle { mode: BUFFER buffer_size: 20 } "),
        std::string("interleave { cycle_length: 2 } ")})
    for (const int count : {1, 3}) {
      INFO(order << count);
      Feeder feeder(data.pipeline(sequence_features + order + batch_of(12, "PAD")), replicas(count));
      std::vector<int64_t> ids = fed_ids(feeder);
      std::sort(ids.begin(), ids.end());
      CHECK(ids == numbers(131));
    }
}

TEST_CASE("SequenceExamples: the elements are told before the first batch") {
  const SequenceData data({5});
  Feeder feeder(data.pipeline(sequence_features + batch_of(1, "DROP")));
  std::map<std::string, ElementSpec> elements;
  for (const ElementSpec& element : feeder.elements()) elements[element.name] = element;
  CHECK(elements.at("pairs").kind == ElementSpec::Kind::padded);
  CHECK(elements.at("frames").kind == ElementSpec::Kind::dense);
  CHECK(elements.at("numbers").kind == ElementSpec::Kind::nested);
  CHECK(elements.at("numbers").tensors() ==
        std::vector<std::string>{"numbers.values", "numbers.step_splits", "numbers.row_splits"});
  CHECK(elements.at("strings").tensors() ==
        std::vector<std::string>{"strings.bytes", "strings.offsets", "strings.step_splits", "strings.row_splits"});
  CHECK(fed_ids(feeder) == numbers(5));  // batches of one row, whose bytes are lent
}

TEST_CASE("SequenceExamples: a range, a filter, passes and a state") {
  const SequenceData data({60, 60});
  const std::string more = sequence_features + "filter: 'mod(id, 2) == 0' epoch { repeat: 2 } ";
  Feeder feeder(data.pipeline(more + batch_of(10, "PARTIAL")).with("source.range", "10:110"));
  std::vector<int64_t> wanted;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t id = 10; id < 110; id += 2) wanted.push_back(id);
  std::vector<int64_t> ids;
  for (int step = 0; step < 3; step++) check_rows(feeder.next(), ids);
  const std::string state = feeder.get_state();
  Feeder second(data.pipeline(more + batch_of(10, "PARTIAL")).with("source.range", "10:110"));
  second.set_state(state);
  const std::vector<int64_t> rest = fed_ids(second);
  ids.insert(ids.end(), rest.begin(), rest.end());
  CHECK(ids == wanted);
}

TEST_CASE("SequenceExamples: windows have features of one shape") {
  const SequenceData data({9});
  const std::string window = "window { size: 3 } batch { global_batch_size: 2 last_batch_policy: PARTIAL } ";
  Feeder feeder(data.pipeline(sequence_features + "output { name: 'frames' feature: 'frames' } " + window));
  const Batch batch = feeder.next();
  REQUIRE(batch.at("frames").shape == Shape{2, 3, 2, 4});
  CHECK(host_bytes(batch.at("frames")).substr(0, 16) == "aaaabbbbbbbbcccc");
  for (const char* varying : {"pairs", "numbers", "strings"})
    CHECK_THROWS_WITH(
        Feeder(data.pipeline(sequence_features + "output { name: 'o' feature: '" + varying + "' } " + window)),
        Contains("window"));
}

TEST_CASE("SequenceExamples: rows that travel between ranks are those that each rank would read") {
  const SequenceData data({50, 0, 37});
  for (const std::string mode : {"REPLICATE", "SCATTER"})
    for (const int ranks : {1, 3}) {
      INFO(mode << " " << ranks);
      const Pipeline pipeline =
          data.pipeline(sequence_features + sequence_outputs + "shuffle { mode: GLOBAL } " + batch_text(12, "PAD"));
      CHECK(feed_rows_that_travel(pipeline, mode, ranks) == nothing_thrown(ranks));
    }
}

TEST_CASE("SequenceExamples: a bad record raises, or is filler without steps") {
  const SequenceData data({0});
  std::vector<std::string> records;
  for (int64_t id = 0; id < 40; id++) records.push_back(sequence_sample(id));
  records[7].resize(records[7].size() - 3);  // cut
  records[21] =
      sequence_sample(21) + wire::delimited(2, wire::entry("pairs", wire::delimited(1, wire::float_feature({1}))));
  write_records(data.dir().file("part-1.tfrecord"), records);
  const auto pipeline = [&](const std::string& on_error) {
    return data.pipeline(sequence_features + "errors { on_error: " + on_error + " } " + batch_of(8, "PARTIAL"));
  };
  Options options;
  options.deliver_before_error = true;
  Feeder raising(pipeline("RAISE"), options);
  std::vector<int64_t> ids;
  try {
    while (const Batch batch = raising.next()) check_rows(batch, ids);
    FAIL("a bad record was fed");
  } catch (const Error& error) {
    CHECK(error.category() == Category::malformed_proto);
    CHECK(error.place().record == 7);
  }
  CHECK(ids == numbers(7));

  Feeder skipping(pipeline("SKIP_RECORD"));
  std::vector<int64_t> wanted = numbers(40);
  std::erase_if(wanted, [](int64_t id) { return id == 7 || id == 21; });
  ids.clear();
  int64_t rows = 0;
  while (const Batch batch = skipping.next()) {
    check_rows(batch, ids);
    rows += batch.rows();
  }
  CHECK(rows == 40);
  CHECK(ids == wanted);
  const auto errors = skipping.report().errors;
  REQUIRE(errors.size() == 2);
  CHECK(errors[0].category() == Category::malformed_proto);
  CHECK(errors[1].category() == Category::wrong_count);
  CHECK(errors[1].place().feature == "pairs");
}

TEST_CASE("SequenceExamples: a feature that is looked for in the wrong place is told, with what there is") {
  const SequenceData data({3});
  const auto refusal = [&](const std::string& features) {
    Feeder feeder(data.pipeline(features + batch_of(1, "DROP")));
    try {
      while (feeder.next()) {
      }
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("fed");
  };
  CHECK_THAT(refusal("feature { name: 'frames' dtype: BYTES } "),
             Contains("'feature_lists/frames' was found instead. Features found: context/id feature_lists/pairs "
                      "feature_lists/numbers feature_lists/strings feature_lists/frames"));
  CHECK_THAT(refusal("feature { name: 'frame' dtype: BYTES where: FEATURE_LIST kind: RAGGED required: true } "),
             Contains("did you mean 'frames'?"));
  CHECK_THAT(refusal("feature { name: 'frame' dtype: BYTES where: FEATURE_LIST kind: RAGGED } "
                     "errors { absent_feature: ERROR } "),
             Contains("did you mean 'frames'?"));
}
