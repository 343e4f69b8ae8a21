// Numbers of values by a hash through the whole feed.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data.h"
#include "distributed.h"
#include "flowgraph/rows/fingerprint.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;
using feedline::flow::fingerprint;

namespace {

constexpr int64_t buckets = 1000;

std::string word_of(int64_t id) { return std::string(static_cast<size_t>(id % 90), 'w') + std::to_string(id); }

/// The number of value i of the feature `numbers` of a record: small ones, and the largest and lowest there are.
int64_t number_of(int64_t id, int64_t i) {
  if (id % 10 == 3) return std::numeric_limits<int64_t>::min() + i;
  if (id % 10 == 4) return std::numeric_limits<int64_t>::max() - i;
  return (id * 7 + i * 3) % 50 - 25;
}

/// Records that have a word, and as many numbers as `count` says.
class Hashed {
 public:
  explicit Hashed(int64_t rows, int64_t count = 4) : count_(count) {
    std::vector<std::string> records;
    for (int64_t id = 0; id < rows; id++) {
      std::vector<int64_t> numbers;
      for (int64_t i = 0; i < count; i++) numbers.push_back(number_of(id, i));
      records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                      wire::entry("word", wire::bytes_feature({word_of(id)})) +
                                      wire::entry("numbers", wire::int64_feature(numbers))));
    }
    write_records(dir_.file("data.tfrecord"), records);
  }

  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
        fmt::format(
            "source {{ files: 'data.tfrecord' }} feature {{ name: 'id' dtype: INT64 }} feature {{ name: 'word' "
            "dtype: BYTES }} feature {{ name: 'numbers' dtype: INT64 shape: [{}, 2] }} "
            "output {{ name: 'id' feature: 'id' }} output {{ name: 'of_id' feature: 'id' hash {{ buckets: {} }} "
            "}} output {{ name: 'word' feature: 'word' hash {{ buckets: {} }} }} output {{ name: 'numbers' "
            "dtype: INT32 feature: 'numbers' hash {{ buckets: {} }} }} ",
            count_ / 2, buckets, int64_t{1} << 62, buckets) +
            more,
        dir_.path());
  }

 private:
  TempDir dir_;
  int64_t count_;
};

/// Adds the ids of a batch's valid rows. Throws if a row has other numbers than its record. Several ranks do so at the
/// same time, so it uses no macro of Catch2.
void check_hashes(const Batch& batch, std::vector<int64_t>& ids) {
  const auto valid = batch.at("@valid").as<uint8_t>();
  const auto id = batch.at("id").as<int64_t>(), of_id = batch.at("of_id").as<int64_t>(),
             word = batch.at("word").as<int64_t>();
  const auto numbers = batch.at("numbers").as<int32_t>();
  const size_t each = numbers.size() / id.size();
  const auto hash_of = [](const std::string& text, uint64_t of) {
    return static_cast<int64_t>(fingerprint(text) % of);
  };
  for (size_t i = 0; i < id.size(); i++) {
    if (!valid[i]) continue;
    ids.push_back(id[i]);
    bool right =
        of_id[i] == hash_of(std::to_string(id[i]), buckets) && word[i] == hash_of(word_of(id[i]), uint64_t{1} << 62);
    for (size_t k = 0; k < each; k++)
      right =
          right && numbers[each * i + k] == hash_of(std::to_string(number_of(id[i], static_cast<int64_t>(k))), buckets);
    if (!right) throw std::logic_error(fmt::format("the numbers of record {} are wrong", id[i]));
  }
}

}  // namespace

TEST_CASE("each value becomes its hash, one in a record or several, in every order") {
  for (const int64_t count : {2, 4, 300}) {  // the writer is given 256 values at a time
    const Hashed data(200, count);
    for (const std::string order :
         {"", "shuffle { block_size: '16KiB' buffer_size: 100 } ", "shuffle { mode: GLOBAL } ", "window { size: 2 } "})
      for (const int replicas_of_rank : {1, 2}) {
        INFO(count << " numbers, " << order << replicas_of_rank << " replicas");
        Feeder feeder(data.pipeline(order + batch_of(14, "PAD")), replicas(replicas_of_rank));
        std::vector<int64_t> ids;
        for (bool ended = false; !ended;)
          for (int replica = 0; replica < replicas_of_rank; replica++) {
            const Batch batch = feeder.next(replica);
            if ((ended = !batch)) continue;
            Shape shape{batch.rows()};
            if (order.starts_with("window")) shape = {batch.rows(), 2};
            CHECK((batch.at("of_id").shape == shape && batch.at("of_id").dtype == DType::int64));
            CHECK((batch.at("word").shape == shape && batch.at("word").dtype == DType::int64));
            std::vector<int64_t> axes(shape.begin(), shape.end());
            axes.insert(axes.end(), {count / 2, 2});
            CHECK((batch.at("numbers").shape == Shape(axes) && batch.at("numbers").dtype == DType::int32));
            check_hashes(batch, ids);
          }
        std::sort(ids.begin(), ids.end());
        CHECK(ids == numbers(200));
        CHECK(feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds);
      }
  }
}

TEST_CASE("hashes are the same where rows travel between ranks, and after a state") {
  const Hashed data(240);
  const Pipeline pipeline = data.pipeline("shuffle { seed: 3 } " + batch_of(12, "DROP"));
  for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"})
    for (const int ranks : {1, 2, 3}) {
      INFO(mode << ", " << ranks << " ranks");
      std::vector<std::vector<int64_t>> ids(static_cast<size_t>(ranks));
      const auto thrown = on_communicators(ranks, [&](int rank, Ends end) {
        Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(std::move(end), 2));
        for (bool ended = false; !ended;)
          for (int replica = 0; replica < 2; replica++) {
            const Batch batch = feeder.next(replica);
            if (!(ended = !batch)) check_hashes(batch, ids[static_cast<size_t>(rank)]);
          }
      });
      CHECK(thrown == nothing_thrown(ranks));
      std::vector<int64_t> all, wanted;
      for (const auto& of_one : ids) all.insert(all.end(), of_one.begin(), of_one.end());
      std::sort(all.begin(), all.end());
      for (const int64_t id : numbers(240))
        wanted.insert(wanted.end(), mode == "REPLICATE" ? 2 * static_cast<size_t>(ranks) : 1, id);
      CHECK(all == wanted);
    }
  Feeder whole(pipeline);
  const Texts all = epoch_of(whole);
  Feeder rest(pipeline);
  rest.set_state(whole.get_state(0, 4));
  CHECK(epoch_of(rest)[0] == std::vector<std::string>(all[0].begin() + 4, all[0].end()));
}

TEST_CASE("ranks with other numbers of buckets are told apart") {
  const Hashed data(40);
  const Pipeline mine = data.pipeline(batch_of(10, "DROP"));
  const auto thrown = on_ranks(2, [&](int rank, Exchange exchange) {
    Options options = replicas(1);
    options.exchange = std::move(exchange);
    options.rank = rank;
    options.world_size = 2;
    const Feeder feeder(rank == 0 ? mine : mine.with("output.of_id.hash.buckets", "999"), options);
  });
  for (const std::string& what : thrown)
    CHECK_THAT(what, Catch::Contains("rank 1 differs from rank 0: output[1].hash.buckets: 999, not 1000"));
}

TEST_CASE("a record that lacks the values, or has too few, is bad, and its row is filler") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 8; id++)
    records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                    (id == 2 ? "" : wire::entry("n", wire::int64_feature({id, id == 5 ? 0 : 7})))));
  records[5] = wire::example(wire::entry("id", wire::int64_feature({5})) + wire::entry("n", wire::int64_feature({5})));
  write_records(dir.file("data"), records);
  Feeder feeder(parse_pipeline(
      "source { files: 'data' } feature { name: 'id' dtype: INT64 } feature { name: 'n' dtype: INT64 shape: 2 } "
      "output { name: 'id' feature: 'id' } output { name: 'n' feature: 'n' hash { buckets: 100 } } "
      "errors { on_error: SKIP_RECORD } " +
          batch_of(8, "PAD"),
      dir.path()));
  const Batch batch = feeder.next();
  REQUIRE(batch);
  CHECK(batch.valid_count() == 6);
  const auto id = batch.at("id").as<int64_t>(), n = batch.at("n").as<int64_t>();
  for (size_t row = 0; row < 8; row++) {
    CHECK(n[2 * row] == static_cast<int64_t>(fingerprint(std::to_string(id[row])) % 100));
    CHECK(n[2 * row + 1] == static_cast<int64_t>(fingerprint("7") % 100));
  }
  CHECK(feeder.report().bad_records == 2);
}
