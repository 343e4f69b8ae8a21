// Pipelines that do not fit their data: features that no record has, epochs without a step, and records that contradict
// the features.
#include <fmt/format.h>

#include "damage.h"
#include "data.h"
#include "support/catch.h"
#include "support/log_lines.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

using Lines = std::vector<std::string>;

template <typename Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string entry_of(const std::string& name, int64_t value) { return wire::entry(name, wire::int64_feature({value})); }

/// Returns `count` records: each has "id", and the one numbered `rare` has "rare", too.
std::vector<std::string> with_rare(int64_t count, int64_t rare) {
  std::vector<std::string> records;
  for (int64_t id = 0; id < count; id++)
    records.push_back(wire::example(entry_of("id", id) + (id == rare ? entry_of("rare", 1) : "")));
  return records;
}

const std::string optional = "feature { name: 'rare' dtype: INT64 default_value { int64_value: 0 } } ";
const std::string judged = "errors { absent_feature: ERROR } ";
const std::string empty_hint = "; to allow an epoch without steps, write epoch { allow_empty: true } [bad_pipeline]";

}  // namespace

TEST_CASE("a feature that no record of the first epoch has is warned of once") {
  const Data data({50, 30});
  const std::string wrong =
      "feature { name: 'idd' dtype: INT64 default_value { int64_value: 7 } } "
      "feature { name: 'w' key: 'raws' dtype: BYTES kind: VARIABLE } feature { name: 'v' dtype: INT64 kind: VARIABLE "
      "} ";
  const std::string has = " Features found: id x b v t p raw [missing_feature]";
  const Lines told = {
      "feature 'idd': no record of epoch 0 has this feature, so every row has the default_value; did you mean "
      "'id'?" +
          has,
      "feature 'w': no record of epoch 0 has this feature, so every row has no values; did you mean 'raw'?" + has};
  {
    const LogLines logged;
    Feeder quiet(data.pipeline(wrong + batch_of(16, "PARTIAL") + "errors { absent_feature: IGNORE } "));
    read_epoch(quiet);
    CHECK(logged.lines() == Lines{});
  }
  for (const std::string more : {"", "shuffle { mode: GLOBAL } ",
                                 "source { files: '*0.tfrecord' files: '*1.tfrecord' "
                                 "record_limit: '64KiB' index { mode: LAZY dir: 'kept' } } "}) {
    INFO(more);
    const LogLines logged;
    const Pipeline pipeline = data.pipeline(wrong + batch_of(16, "PARTIAL"));
    Feeder feeder(more.empty() ? pipeline : pipeline.overlaid(more), replicas(2));
    for (int epoch = 0; epoch < 3; epoch++) {
      read_epoch(feeder);
      CHECK(logged.lines() == told);
    }
  }
}

TEST_CASE("one record that has it is enough, wherever it lies") {
  for (const int64_t rare : {0, 1, 700, 1998, 1999})
    for (const Compression compression : {Compression::none, Compression::gzip}) {
      const TempDir dir;
      write_records(dir.file("data"), with_rare(2000, rare), compression);
      for (const std::string order :
           {"", "shuffle { block_size: '16KiB' buffer_size: 200 } ", "shuffle { mode: GLOBAL } "}) {
        INFO(rare << " " << order);
        Feeder feeder(parse_pipeline("source { files: 'data' } feature { name: 'id' dtype: INT64 } " + optional +
                                         judged + order + batch_of(64, "PARTIAL"),
                                     dir.path()));
        CHECK(read_epoch(feeder).front().all().size() == 2000);
      }
    }
}

TEST_CASE("with RAISE the error comes after the batches of the first whole epoch") {
  const Data data({50, 30});
  const Pipeline pipeline = data.pipeline(optional + judged + batch_of(20, "DROP"));
  const std::string wanted =
      "feature 'rare': no record of epoch 0 has this feature, so every row has the default_value; ";
  for (const int count : {1, 2}) {
    Feeder feeder(pipeline, replicas(count));
    for (int step = 0; step < 4; step++)
      for (int r = 0; r < count; r++) CHECK(feeder.next(r).rows() == 20 / count);
    for (int r = 0; r < count; r++) CHECK_THAT(error_of([&] { feeder.next(r); }), Catch::StartsWith(wanted));
  }
  // An epoch that began in its middle gives no verdict on the records before its beginning.
  Feeder counted(data.pipeline(batch_of(20, "DROP")));
  Feeder late(pipeline);
  late.set_state(counted.get_state(3));
  CHECK(late.next().rows() == 20);
  CHECK_FALSE(late.next());
  for (int step = 0; step < 4; step++) CHECK(late.next().rows() == 20);
  CHECK_THAT(error_of([&] { late.next(); }),
             Catch::StartsWith("feature 'rare': no record of epoch 1 has this feature"));
}

TEST_CASE("an epoch without a step is refused, and says which stage leaves too little") {
  const Data data({5, 0, 7}), nothing({0, 0});
  const auto refusal = [](const Data& of, const std::string& more) {
    return error_of([&] { Feeder feeder(of.pipeline(more)); });
  };
  const std::string drop = batch_of(64, "DROP"), small = batch_of(2, "DROP");
  const std::string window_hint = "; lower window.size or window.stride";
  CHECK(refusal(data, drop) ==
        "the data has 12 samples, but with last_batch_policy DROP a step needs a whole global batch of 64 rows; lower "
        "the batch size, or set batch.last_batch_policy to PARTIAL or PAD" +
            empty_hint);
  CHECK_THAT(refusal(data, drop + "epoch { repeat: 3 }"), Catch::StartsWith("an epoch has 36 samples, but"));
  CHECK(refusal(data, drop + "epoch { repeat: 6 }") == "no error");
  CHECK(refusal(data, batch_of(64, "PARTIAL")) == "no error");
  CHECK(refusal(data, batch_of(12, "DROP")) == "no error");
  CHECK(refusal(nothing, batch_of(2, "PAD")) == "the data has no records: 2 files, the first of them '" +
                                                    nothing.path(0) + "' of 0 bytes; check source.files" + empty_hint);
  CHECK(refusal(data, small + "filter: 'id > 11'") ==
        "filter: the formula keeps none of 12 records: id > 11" + empty_hint);
  CHECK(error_of([&] { Feeder(data.pipeline(small).with("source.range", "12:20")); }) ==
        "source: 'range', num_shards and shard_id choose none of 12 records; choose a larger part" + empty_hint);
  CHECK(error_of([&] { Feeder(data.pipeline(small + "filter: 'id > 5'").with("source.range", "0:3")); }) ==
        "filter: the formula keeps none of 3 records: id > 5" + empty_hint);
  CHECK(refusal(data, small + "window { size: 4 stride: 3 }") ==
        "window: a window spans 10 records, but no file has more than 7 usable records" + window_hint + empty_hint);
  CHECK(refusal(data, small + "window { size: 13 across_files: true }") ==
        "window: a window spans 13 records, but the data has 12 usable records" + window_hint + empty_hint);
  CHECK(refusal(data, small + "window { size: 3 key: 'id' }") ==
        "window: a window spans 3 records, but nowhere do that many consecutive records have the same value of 'id'" +
            window_hint + empty_hint);
  CHECK_THAT(refusal(data, batch_of(3, "DROP") + "window { size: 5 }"),
             Catch::StartsWith("the data has 2 windows, but"));
  // Not allowed even then: passes without end over no samples.
  CHECK(refusal(data, small + "window { size: 8 } epoch { repeat: -1 allow_empty: true }") ==
        "window: a window spans 8 records, but no file has more than 7 usable records" + window_hint +
            " [bad_pipeline]");
  CHECK_THAT(refusal(data, small + "window { size: 8 } epoch { steps: 5 }"),
             Catch::StartsWith("window: a window spans 8"));
  for (const std::string& more : {drop, small + "filter: 'id > 11' ", small + "window { size: 8 } "})
    CHECK(refusal(data, more + "epoch { allow_empty: true }") == "no error");
}

TEST_CASE("a mixture without a step is refused, and so are weights that make it one") {
  const TempDir dir;
  write_records(dir.file("a"), {sample(0), sample(1), sample(2), sample(3)});
  write_records(dir.file("b"), {});
  const std::string rest = " feature { name: 'id' dtype: INT64 } mixture {} ";
  const auto refusal = [&](const std::string& text) {
    return error_of([&] { Feeder(parse_pipeline(text, dir.path())); });
  };
  CHECK(
      refusal("source { files: 'a' } source { files: 'b' }" + rest + batch_of(2, "PARTIAL")) ==
      "mixture: an epoch ends when the first source is exhausted, and source[1] has no samples; remove this source, or "
      "change its 'range' or the filter so that samples remain" +
          empty_hint);
  const std::string both = "source { files: 'a' range: '0:2' weight: 1 } source { files: 'a' range: '2:4' weight: 1 }";
  CHECK_THAT(refusal(both + rest + batch_of(5, "DROP")),
             Catch::StartsWith("an epoch of the mixture has 4 samples, but"));
  Feeder feeder(parse_pipeline(both + rest + batch_of(4, "DROP"), dir.path()));
  CHECK_THAT(error_of([&] { feeder.set_weights({2, 1}); }), Catch::StartsWith("an epoch of the mixture has 3 samples"));
  CHECK(feeder.next().rows() == 4);  // the refused weights have changed nothing
}

TEST_CASE("an error at the end of the data comes before 'too few samples'") {
  const Data data({12});
  flip(data.path(0), offset_of(data.path(0), 3) + 20);
  Feeder feeder(data.pipeline(batch_of(64, "DROP")));
  CHECK_THAT(error_of([&] { feeder.next(); }), Catch::EndsWith("[bad_data_crc]"));
  CHECK_THAT(error_of([&] { Feeder(data.pipeline(batch_of(64, "DROP") + "errors { on_error: SKIP_RECORD }")); }),
             Catch::StartsWith("the data has 11 samples"));
  const Data bad({1});
  flip(bad.path(0), 20);
  CHECK(error_of([&] { Feeder(bad.pipeline(batch_of(1, "DROP") + "errors { on_error: SKIP_RECORD }")); }) ==
        "the data has no good records: 1 file, 1 failure; see what is damaged with `feedline verify FILE...`" +
            empty_hint);
}

TEST_CASE("all ranks are refused alike where an epoch has no step") {
  const Data data({20});
  const auto thrown = on_ranks(3, [&](int rank, Exchange exchange) {
    Options options{.rank = rank, .world_size = 3};
    options.exchange = std::move(exchange);
    Feeder(data.pipeline(batch_of(24, "DROP")), options);
  });
  for (const std::string& said : thrown) {
    CHECK(said == thrown[0]);
    CHECK_THAT(said, Catch::StartsWith("the data has 20 samples, but with last_batch_policy DROP"));
  }
}

TEST_CASE("a lazy feed finds at the end of the first epoch that it has no step") {
  const auto lazily = [](const Data& data, const std::string& more) {
    return parse_pipeline(
        "source { files: 'part-*.tfrecord' index { mode: LAZY dir: 'kept' } } "
        "feature { name: 'id' dtype: INT64 } " +
            more,
        data.dir().path());
  };
  const auto first_call = [&](const Data& data, const std::string& more) {
    Feeder feeder(lazily(data, more), replicas(2));
    std::vector<std::string> said;
    for (int replica = 0; replica < 2; replica++) said.push_back(error_of([&] { feeder.next(replica); }));
    CHECK(said[0] == said[1]);
    return said[0];
  };
  const Data nothing({0, 0});
  CHECK(first_call(nothing, batch_of(2, "PAD")) == "the data has no records: 2 files, the first of them '" +
                                                       nothing.path(0) + "' of 0 bytes; check source.files" +
                                                       empty_hint);
  CHECK_THAT(first_call(Data({5, 3}), batch_of(10, "DROP")), Catch::StartsWith("the data has 8 samples, but with"));
  CHECK(first_call(Data({5, 3}), batch_of(10, "DROP") + "epoch { allow_empty: true }") == "no error");
  const Data enough({5, 3});
  Feeder whole(lazily(enough, batch_of(4, "DROP")));
  for (int epoch = 0; epoch < 3; epoch++) CHECK(read_epoch(whole).front().ids.size() == 2);
}

TEST_CASE("an epoch without a sample ends at once, in every order") {
  const Data data({10});
  for (const std::string order : {"", "shuffle { block_size: '16KiB' } ", "shuffle { mode: BUFFER buffer_size: 5 } ",
                                  "shuffle { mode: GLOBAL } "}) {
    INFO(order);
    Feeder feeder(data.pipeline(order +
                                "window { size: 30 } epoch { allow_empty: true } output { name: 'more' expression { "
                                "formula: 'id + 1' } } " +
                                batch_of(2, "DROP")));
    for (int epoch = 0; epoch < 3; epoch++) CHECK_FALSE(feeder.next());
  }
}

TEST_CASE("a few records show where the features do not fit") {
  const auto tried = [](const Data& data, const std::string& more, uint64_t of_each) {
    return Feeder(data.pipeline(more + batch_of(1, "DROP"))).try_records(of_each);
  };
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    const Data data({40, 3, 0, 900}, compression);
    const std::string at = data.path(0) + ": offset 0: record 0: ";

    const TriedRecords good = tried(data, "feature { name: 'x' dtype: FLOAT32 shape: 3 } ", 16);
    CHECK(good.files == 3);
    CHECK(good.records == 16 + 3 + 16);
    CHECK(good.failed == 0);
    CHECK(good.errors.empty());
    CHECK(good.absent.empty());

    const TriedRecords bad = tried(data, "feature { name: 'x' dtype: FLOAT32 shape: 2 } ", 2);
    CHECK(bad.records == 6);
    CHECK(bad.failed == 6);
    CHECK(bad.raised);
    REQUIRE(bad.errors.size() == 1);
    CHECK(bad.errors[0].what() == at + "feature 'x': the record holds 3 values, but shape [2] needs 2 values; change "
                                       "'shape', or write kind: VARIABLE without a shape if the number of values "
                                       "differs between records [wrong_count]");

    // "v" has `id % 4` values: record 2 is the first with more than one.
    const TriedRecords some = tried(data,
                                    "feature { name: 'v' dtype: INT64 kind: VARIABLE max_values: 1 } "
                                    "feature { name: 'rwa' dtype: FLOAT32 kind: VARIABLE } "
                                    "errors { on_error: SKIP_RECORD } ",
                                    4);
    CHECK(some.records == 4 + 3 + 4);
    CHECK(some.failed == 5);  // records 2 and 3, one of 40 to 42, two of 43 to 46
    CHECK_FALSE(some.raised);
    REQUIRE(some.errors.size() == 1);
    CHECK_THAT(some.errors[0].what(), Catch::Contains("record 2: feature 'v': the record holds 2 values"));
    REQUIRE(some.absent.size() == 1);
    CHECK(some.absent[0].what() ==
          std::string("feature 'rwa': no record that was tried has this feature, so every row has no values; did you "
                      "mean 'raw'? Features found: id x b v t p raw [missing_feature]"));

    CHECK(tried(data, "", 0).records == 0);
  }
}

TEST_CASE("records that are no samples are not tried") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 3000; id++)
    records.push_back(id < 1000 || id == 2000 ? "\x7fno Example" : wire::example(entry_of("id", id)));
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    write_records(dir.file("data"), records, compression);
    const auto tried = [&](const std::string& range, const std::string& more, uint64_t of_each) {
      return Feeder(parse_pipeline("source { files: 'data' range: '" + range +
                                       "' } feature { name: 'id' dtype: INT64 } " + more + batch_of(1, "DROP"),
                                   dir.path()))
          .try_records(of_each);
    };
    const TriedRecords good = tried("1000:", "", 900);
    CHECK(good.records == 900);
    CHECK(good.errors.empty());
    const TriedRecords bad = tried("1990:", "", 16);
    CHECK(bad.failed == 1);
    REQUIRE(bad.errors.size() == 1);
    CHECK(bad.errors[0].place().record == 2000);
    CHECK(bad.errors[0].place().offset == static_cast<int64_t>([&] {
            uint64_t offset = 0;
            for (size_t i = 0; i < 2000; i++) offset += records[i].size() + 16;
            return offset;
          }()));
    // The filter keeps few records, which lie far apart.
    const TriedRecords kept = tried("1000:", "errors { on_error: SKIP_RECORD } filter: 'mod(id, 500) == 7' ", 16);
    CHECK(kept.records == 4);
    CHECK(kept.errors.empty());
  }
}

TEST_CASE("of records of type RAW the length is tried, and of lazy data the first records") {
  const TempDir dir;
  write_records(dir.file("a"), {"12345678", "1234"});
  const auto tried = [&](const std::string& text) {
    return Feeder(parse_pipeline(text + batch_of(1, "DROP"), dir.path())).try_records(16);
  };
  const std::string length = "feature { name: 'record' dtype: BYTES length: 8 } ";
  const TriedRecords raw = tried("source { files: 'a' record_type: RAW } " + length);
  CHECK(raw.records == 2);
  REQUIRE(raw.errors.size() == 1);
  CHECK_THAT(raw.errors[0].what(), Catch::Contains("record 1: feature 'record': the record has 4 bytes"));
  const TriedRecords lazy = tried("source { files: 'a' record_type: RAW index { mode: LAZY dir: 'kept' } } " + length);
  CHECK(lazy.failed == 1);
  // These are other files, because a lazy feed may already have stored an index of what it read.
  for (const char* name : {"b", "c"}) {
    write_records(dir.file(name), {"12345678", "1234"});
    flip(dir.file(name), 14);
  }
  const TriedRecords damaged =
      tried("source { files: 'b' record_type: RAW index { mode: LAZY dir: 'kept' } } " + length);
  REQUIRE(damaged.errors.size() == 1);
  CHECK(damaged.errors[0].category() == Category::bad_data_crc);
  const TriedRecords counted = tried("source { files: 'c' record_type: RAW } " + length);
  REQUIRE(counted.errors.size() == 1);  // the error with which counting the data ended
  CHECK(counted.errors[0].category() == Category::bad_data_crc);
  CHECK(counted.records == 0);
}

TEST_CASE("lists with a max_values are fed in every order, whatever more is read for them") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 6000; id++) {
    const std::string half(100, static_cast<char>('a' + id % 26));
    records.push_back(wire::example(wire::entry("b", wire::bytes_feature({half, half}))));
  }
  write_records(dir.file("r"), records);
  for (const char* stride : {"16KiB", "256KiB", "1MiB"})
    for (const char* shuffle : {"NONE", "BLOCK block_size: '1MiB'", "BUFFER buffer_size: 20", "GLOBAL"})
      for (const int most : {110, 500})
        for (const int world : {1, 2}) {
          if (std::string_view(shuffle).starts_with("BUFFER") && std::string_view(stride) == "1MiB") continue;  // 8 GiB
          INFO(shuffle << ", " << stride << ", max_values " << most << ", " << world << " ranks");
          const Pipeline pipeline = parse_pipeline(
              fmt::format("source {{ files: 'r' index {{ stride: '{}' }} }} feature {{ name: 'b' dtype: BYTES "
                          "kind: RAGGED max_values: {} }} shuffle {{ mode: {} }} "
                          "batch {{ global_batch_size: 1000 last_batch_policy: DROP }}",
                          stride, most, shuffle),
              dir.path());
          Feeder feeder(pipeline, {.rank = 0, .world_size = world});
          int64_t rows = 0, bytes = 0;
          while (const Batch batch = feeder.next(0)) {
            rows += batch.rows();
            bytes += static_cast<int64_t>(batch.at("b.bytes").size_bytes());
          }
          CHECK(rows == 6000 / world);
          CHECK(bytes == 200 * rows);
        }
}

TEST_CASE("a plan that does not fit is refused with what would help") {
  const Data data({20000});
  const auto refused = [&](const std::string& pipeline, uint64_t limit) {
    return error_of([&] { Feeder feeder(data.pipeline(pipeline + fmt::format("memory {{ limit: '{}' }} ", limit))); });
  };
  /// Returns all that is said at some limits below the memory that the plan needs.
  const auto said = [&](const std::string& pipeline) {
    const std::string least = refused(pipeline, 1 << 10);
    const size_t at = least.find("at least \"");
    REQUIRE(at != least.npos);
    const uint64_t enough = std::stoull(least.substr(at + 10)) << 20;
    std::string all;
    for (uint64_t eighths = 1; eighths < 8; eighths++) all += refused(pipeline, enough * eighths / 8) + "\n";
    return all;
  };
  const std::string blocks = "shuffle { buffer_size: 2000 lanes: 8 block_size: '16KiB' } " + batch_of(16, "DROP");
  CHECK_THAT(said(blocks), Catch::Contains("or set fewer shuffle.lanes") && !Catch::Contains("host_prefetch"));
  const std::string batches = batch_of(1000, "DROP") + "parallelism { host_prefetch: 100 } ";
  CHECK_THAT(said(batches), Catch::Contains("or set a smaller parallelism.host_prefetch") && !Catch::Contains("lanes"));
}
