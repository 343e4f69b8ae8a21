// What is delivered, in which order, and in which batches.
#include <algorithm>

#include "data.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/plan/plan.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

TEST_CASE("records come in file order, over shards of any size") {
  const Data data({3, 0, 1, 700, 0, 0, 40, 2});
  Feeder feeder(data.pipeline("batch { global_batch_size: 64 last_batch_policy: PARTIAL }"));
  CHECK(feeder.samples_per_epoch() == data.count());
  CHECK(feeder.steps_per_epoch() == (data.count() + 63) / 64);
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    CHECK(feeder.epoch() == epoch);
    const Epoch got = read_epoch(feeder).front();
    CHECK(got.all() == numbers(data.count()));
    CHECK(static_cast<int64_t>(got.ids.size()) == feeder.steps_per_epoch());
  }
  CHECK(feeder.report().records == 3 * static_cast<uint64_t>(data.count()));
  CHECK(feeder.report().filler_rows == 0);
}

TEST_CASE("many chunks, large and small batches, any number of threads: the same order") {
  const Data data({9000, 1, 12000, 5000});
  for (const int size : {1, 7, 512, 20000})
    for (const int threads : {1, 2}) {
      Options options;
      options.threads = threads;
      Feeder feeder(
          data.pipeline("batch { global_batch_size: " + std::to_string(size) + " last_batch_policy: PARTIAL }"),
          options);
      CHECK(read_epoch(feeder).front().all() == numbers(data.count()));
    }
}

TEST_CASE("replicas get the rows [r G/R, (r+1) G/R) of each global batch") {
  const Data data({1000});
  for (const int count : {1, 2, 3, 4, 6}) {
    Feeder feeder(data.pipeline("batch { global_batch_size: 60 last_batch_policy: DROP }"), replicas(count));
    const auto epochs = read_epoch(feeder);
    CHECK(feeder.steps_per_epoch() == 16);
    for (int r = 0; r < count; r++) {
      const Epoch& got = epochs[static_cast<size_t>(r)];
      REQUIRE(got.ids.size() == 16);
      for (int64_t step = 0; step < 16; step++)
        CHECK(got.ids[static_cast<size_t>(step)] == numbers(60 / count, step * 60 + r * (60 / count)));
    }
    CHECK(feeder.report().dropped_samples == 40);
  }
}

TEST_CASE("last batch: shared evenly, padded, or dropped") {
  for (const int64_t count : {40, 41, 44, 59, 60, 19, 1}) {
    const Data data({count});
    for (const int ranks : {1, 2, 4}) {
      const auto size = std::string("batch { global_batch_size: 20 ");
      {
        Feeder feeder(data.pipeline(size + "last_batch_policy: DROP } epoch { allow_empty: true }"), replicas(ranks));
        for (const Epoch& got : read_epoch(feeder)) CHECK(static_cast<int64_t>(got.ids.size()) == count / 20);
        CHECK(feeder.report().records == static_cast<uint64_t>(count / 20 * 20));
        CHECK(feeder.report().dropped_samples == static_cast<uint64_t>(count % 20));
      }
      {
        Feeder feeder(data.pipeline(size + "last_batch_policy: PARTIAL }"), replicas(ranks));
        const auto epochs = read_epoch(feeder);
        std::vector<int64_t> last;
        for (const Epoch& got : epochs) {
          REQUIRE(static_cast<int64_t>(got.ids.size()) == (count + 19) / 20);
          CHECK(got.rows.back() == std::max<int64_t>(1, got.valid.back()));
          last.insert(last.end(), got.ids.back().begin(), got.ids.back().end());
        }
        const int64_t rest = count % 20 == 0 ? 20 : count % 20;
        CHECK(last == numbers(rest, count - rest));
        const auto [fewest, most] = std::minmax_element(
            epochs.begin(), epochs.end(), [](auto& a, auto& b) { return a.valid.back() < b.valid.back(); });
        CHECK(most->valid.back() - fewest->valid.back() <= 1);
      }
      {
        Feeder feeder(data.pipeline(size + "last_batch_policy: PAD valid_mask: 'mask' }"), replicas(ranks));
        std::vector<int64_t> all;
        for (int64_t step = 0; step < feeder.steps_per_epoch(); step++)
          for (int r = 0; r < ranks; r++) {
            auto batch = feeder.next(r);
            REQUIRE(batch);
            CHECK(batch.rows() == 20 / ranks);
            const auto mask = batch.at("mask").as<uint8_t>();
            const auto ids = batch.at("id").as<int64_t>();
            CHECK(std::count(mask.begin(), mask.end(), 1) == batch.valid_count());
            for (size_t i = 0; i < ids.size(); i++) {
              if (mask[i])
                all.push_back(ids[i]);
              else
                CHECK(ids[i] == count - 1);  // filler repeats the nearest sample
            }
          }
        CHECK(all == numbers(count));
        CHECK(feeder.report().filler_rows == static_cast<uint64_t>((20 - count % 20) % 20));
      }
    }
  }
}

TEST_CASE("an epoch of several passes: batches cross their borders") {
  const Data data({25});
  Feeder feeder(data.pipeline("epoch { repeat: 3 } batch { global_batch_size: 10 last_batch_policy: PARTIAL }"));
  CHECK(feeder.samples_per_epoch() == 75);
  CHECK(feeder.steps_per_epoch() == 8);
  const auto got = read_epoch(feeder).front().all();
  REQUIRE(got.size() == 75);
  for (size_t i = 0; i < 75; i++) CHECK(got[i] == static_cast<int64_t>(i % 25));
}

TEST_CASE("a batch larger than the data, filled by passes of an endless epoch") {
  const Data data({7});
  Feeder feeder(data.pipeline("epoch { repeat: -1 } batch { global_batch_size: 30 }"));
  CHECK(feeder.steps_per_epoch() == -1);
  int64_t next = 0;
  for (int step = 0; step < 20; step++) {
    const auto batch = feeder.next();
    REQUIRE(batch.rows() == 30);
    for (int64_t id : batch.at("id").as<int64_t>()) CHECK(id == next++ % 7);
  }
}

TEST_CASE("epochs without a step end at once, every time") {
  for (const int64_t count : {0, 5}) {
    const Data data({count});
    Feeder feeder(data.pipeline("batch { global_batch_size: 10 } epoch { allow_empty: true }"), replicas(2));
    CHECK(feeder.steps_per_epoch() == 0);
    for (int epoch = 0; epoch < 40; epoch++)
      for (int r = 0; r < 2; r++) CHECK_FALSE(feeder.next(r));
    CHECK(feeder.epoch() == 40);
  }
}

TEST_CASE("reserved features say where a row came from") {
  const Data data({30, 50});
  const TempDir other;
  write_records(other.file("z.tfrecord"), {sample(80), sample(81)});
  Feeder feeder(
      parse_pipeline("source { files: 'part-*.tfrecord' } source { files: '" + other.file("z.tfrecord") +
                         "' }"
                         "feature { name: 'id' dtype: INT64 } output { name: 'id' feature: 'id' }"
                         "output { name: 'record' feature: '@record' } output { name: 'file' feature: '@file' }"
                         "output { name: 'offset' feature: '@offset' } output { name: 'source' feature: '@source' }"
                         "batch { global_batch_size: 100 last_batch_policy: PARTIAL }",
                     data.dir().path()));
  const auto batch = feeder.next();
  REQUIRE(batch.rows() == 82);
  REQUIRE(feeder.files().size() == 3);
  for (int64_t i = 0; i < 82; i++) {
    const auto at = [&](const char* name) { return batch.at(name).as<int64_t>()[static_cast<size_t>(i)]; };
    CHECK(at("id") == i);
    CHECK(at("source") == (i < 80 ? 0 : 1));
    CHECK(at("record") == (i < 80 ? i : i - 80));
    CHECK(at("file") == (i < 30 ? 0 : i < 80 ? 1 : 2));
    RecordReader reader(feeder.files()[static_cast<size_t>(at("file"))]);
    Record record;
    int64_t offset = -1;
    for (int64_t n = 0; n <= (i < 30 ? i : i < 80 ? i - 30 : i - 80); n++) {
      REQUIRE(reader.next(record) == ReadResult::record);
      offset = static_cast<int64_t>(record.offset);
    }
    CHECK(at("offset") == offset);
  }
}

TEST_CASE("compressed files, mixed with plain ones, several at once") {
  for (const Compression compression : {Compression::gzip}) {
    const Data data({3000, 10, 0, 9000, 4000, 1}, compression);
    for (const int size : {100, 5000}) {
      Feeder feeder(
          data.pipeline("batch { global_batch_size: " + std::to_string(size) + " last_batch_policy: PARTIAL }"));
      for (int epoch = 0; epoch < 2; epoch++) CHECK(read_epoch(feeder).front().all() == numbers(data.count()));
    }
  }
}

TEST_CASE("numbers, bytes and variable values arrive as they were written") {
  const Data data({500, 300});
  Feeder feeder(
      data.pipeline(
          "feature { name: 'x' dtype: FLOAT32 shape: 3 } feature { name: 'b' dtype: BYTES length: 5 }"
          "feature { name: 'v' dtype: INT64 kind: VARIABLE } feature { name: 't' dtype: BYTES kind: VARIABLE }"
          "feature { name: 'p' dtype: INT64 kind: FIXED_SEQUENCE default_value { int64_value: -1 } }"
          "feature { name: 'raw' dtype: BYTES }"
          "batch { global_batch_size: 64 last_batch_policy: PARTIAL }"),
      replicas(2));
  int64_t id = 0;
  for (int64_t step = 0; step < feeder.steps_per_epoch(); step++)
    for (int r = 0; r < 2; r++) {
      const auto batch = feeder.next(r);
      const auto x = batch.at("x").as<float>();
      const auto b = batch.at("b").as<uint8_t>();
      const auto splits = batch.at("v.row_splits").as<int64_t>();
      const auto values = batch.at("v.values").as<int64_t>();
      const auto strings = batch.at("t.row_splits").as<int64_t>();
      const auto offsets = batch.at("t.offsets").as<int64_t>();
      const auto text = batch.at("t.bytes").as<uint8_t>();
      const auto raw = batch.at("raw.bytes").as<uint8_t>();
      const TensorView padded = batch.at("p");
      CHECK(batch.at("x").shape == Shape({batch.rows(), 3}));
      CHECK(batch.at("b").shape == Shape({batch.rows(), 5}));
      CHECK(batch.at("raw.offsets").shape == Shape({batch.rows() + 1}));
      REQUIRE(padded.shape.rank() == 2);
      for (size_t i = 0; i < static_cast<size_t>(batch.rows()); i++, id++) {
        CHECK(x[3 * i + 1] == static_cast<float>(id) / 2);
        CHECK(b[5 * i + 4] == static_cast<uint8_t>(id + 4));
        CHECK(raw[5 * i + 4] == static_cast<uint8_t>(id + 4));
        REQUIRE(splits[i + 1] - splits[i] == id % 4);
        for (int64_t k = 0; k < padded.shape[1]; k++) {
          const int64_t wanted = k < id % 4 ? id * 10 + k : -1;
          if (k < id % 4) CHECK(values[static_cast<size_t>(splits[i] + k)] == wanted);
          CHECK(padded.as<int64_t>()[i * static_cast<size_t>(padded.shape[1]) + static_cast<size_t>(k)] == wanted);
        }
        REQUIRE(strings[i + 1] - strings[i] == id % 3);
        for (int64_t k = 0; k < id % 3; k++) {
          const auto at = static_cast<size_t>(strings[i] + k);
          const std::string got(text.begin() + offsets[at], text.begin() + offsets[at + 1]);
          CHECK(got == std::string(static_cast<size_t>(id % 7 + k), static_cast<char>('a' + k)));
        }
      }
    }
  CHECK(id == data.count());
}

TEST_CASE("stacks, formulas and casts") {
  const Data data({100});
  Feeder feeder(
      data.pipeline("feature { name: 'b' dtype: BYTES length: 5 }"
                    "feature { name: 'none' dtype: INT64 default_value { int64_value: -3 } }"
                    "output { name: 'low' dtype: UINT8 feature: 'id' }"
                    "output { name: 'half' dtype: FLOAT16 expression { formula: 'id / 2 + out.low * c' constants { "
                    "key: 'c' value: 0.25 } } }"
                    "output { name: 'stack' dtype: INT32 stack { features: 'id' features: 'none' } }"
                    "output { name: 'bit' feature: 'b' dtype: FLOAT32 internal: true unpack_bits { bit_offset: 7 } }"
                    "output { name: 'odd' dtype: INT64 expression { formula: 'out.bit' } }"
                    "batch { global_batch_size: 100 }"));
  const auto batch = feeder.next();
  REQUIRE(batch);
  for (size_t i = 0; i < 100; i++) {
    CHECK(batch.at("low").as<uint8_t>()[i] == i);
    CHECK(batch.at("stack").as<int32_t>()[2 * i] == static_cast<int32_t>(i));
    CHECK(batch.at("stack").as<int32_t>()[2 * i + 1] == -3);
    CHECK(batch.at("odd").as<int64_t>()[i] == static_cast<int64_t>(i % 2));
  }
  CHECK(batch.at("half").as<uint16_t>()[4] == 0x4200);  // 4 / 2 + 4 / 4 = 3
  CHECK_THROWS_AS(batch.at("bit"), Error);
}

TEST_CASE("the rows of replicas in a step that is not full") {
  using flow::LastBatchPolicy;
  const auto rows = [&](LastBatchPolicy policy, int rank) {
    return flow::Steps({.samples = 5, .steps = 0}, 8, policy, 1, false, {.rank = rank, .world_size = 2, .replicas = 2});
  };
  constexpr auto last = flow::Steps::Kind::last;
  CHECK(rows(LastBatchPolicy::partial, 1).of_replica(last, 1) == flow::Rows{4, 5});
  CHECK(rows(LastBatchPolicy::partial, 0).of_replica(last, 0) == flow::Rows{0, 2});
  CHECK(rows(LastBatchPolicy::pad, 1).of_replica(last, 0) == flow::Rows{4, 6});
  CHECK(rows(LastBatchPolicy::pad, 1).of_replica(last, 1) == flow::Rows{6, 8});
  CHECK(rows(LastBatchPolicy::pad, 1).of_rank(last) == flow::Rows{4, 5});
  CHECK(rows(LastBatchPolicy::drop, 1).per_epoch() == 0);
}

TEST_CASE("the largest span of samples, by trying them all") {
  const Data data({3, 0, 5000, 1, 400});
  flow::DataSet counted = flow::count_data(flow::validate(data.pipeline("batch { global_batch_size: 1 }")), 1, {});
  const flow::Order order(counted, counted.all_files(), {}, {}, {}, {});
  std::vector<uint64_t> block_of, bytes_of;
  for (uint64_t b = 0; b < order.blocks().size(); b++) {
    bytes_of.push_back(order.blocks()[b].bytes);
    block_of.insert(block_of.end(), order.blocks()[b].rows, b);
  }
  REQUIRE(block_of.size() == 5404);
  CHECK(order.blocks().size() >= 4);
  const uint64_t samples = block_of.size(), blocks = order.blocks().size();
  for (const bool one_pass : {true, false})
    for (const uint64_t count : {1, 2, 63, 64, 1000, 5404, 12000}) {
      flow::Order::Span wanted;
      for (uint64_t first = 0; first < samples; first++) {
        const uint64_t last = one_pass ? std::min(samples - 1, first + count - 1) : first + count - 1;
        const uint64_t from = block_of[first], to = block_of[last % samples] + last / samples * blocks;
        uint64_t bytes = 0;
        for (uint64_t b = from; b <= to; b++) bytes += bytes_of[b % blocks];
        wanted.blocks = std::max(wanted.blocks, to - from + 1);
        wanted.bytes = std::max(wanted.bytes, bytes);
      }
      const auto got = order.largest_span(count, one_pass);
      INFO(count << " samples, one pass: " << one_pass);
      CHECK(got.blocks == wanted.blocks);
      CHECK(got.bytes == wanted.bytes);
    }
}

TEST_CASE("raw records are one bytes feature") {
  const TempDir dir;
  write_records(dir.file("a"), {"one", "", "three"});
  Feeder feeder(parse_pipeline("source { files: 'a' record_type: RAW } batch { global_batch_size: 3 }", dir.path()));
  const auto batch = feeder.next();
  REQUIRE(batch);
  const auto bytes = batch.at("record.bytes").as<char>();
  CHECK(std::string(bytes.begin(), bytes.end()) == "onethree");
  const auto offsets = batch.at("record.offsets").as<int64_t>();
  CHECK(std::vector<int64_t>(offsets.begin(), offsets.end()) == std::vector<int64_t>{0, 3, 3, 8});
}
