// Which samples there are, and in which order files give them: range, shards, interleave, epochs of so many steps.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "data.h"
#include "flowgraph/plan.h"
#include "flowgraph/walk.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

const std::string partial = " batch { global_batch_size: 16 last_batch_policy: PARTIAL }";

using Fields = std::vector<std::pair<std::string, std::string>>;

Pipeline with(Pipeline pipeline, const Fields& fields) {
  for (const auto& [field, value] : fields) pipeline = pipeline.with(field, value);
  return pipeline;
}

std::vector<int64_t> epoch_of(const Pipeline& pipeline) {
  Feeder feeder(pipeline);
  return read_epoch(feeder).front().all();
}

// tf.data's InterleaveDataset, sample by sample.
std::vector<std::pair<uint32_t, uint64_t>> interleaved(const std::vector<int64_t>& sizes, size_t cycle_length,
                                                       int64_t block_length) {
  struct Element {
    bool open = false;
    size_t file = 0;
    int64_t next = 0;
  };
  std::vector<std::pair<uint32_t, uint64_t>> out;
  std::vector<Element> cycle(cycle_length);
  size_t turn = 0, next_file = 0, open = 0;
  int64_t given = 0;
  const auto advance = [&] {
    turn = (turn + 1) % cycle_length;
    given = 0;
  };
  while (open > 0 || next_file < sizes.size()) {
    Element& element = cycle[turn];
    if (!element.open) {
      if (next_file == sizes.size()) {
        advance();
        continue;
      }
      element = {true, next_file++, 0};
      open++;
    }
    if (element.next == sizes[element.file]) {
      element.open = false;
      open--;
      advance();
      continue;
    }
    out.push_back({static_cast<uint32_t>(element.file), static_cast<uint64_t>(element.next++)});
    if (++given == block_length) advance();
  }
  return out;
}

// A window as pipeline.proto has it.
struct WindowShape {
  std::string text;
  int64_t size, shift, stride;
  bool drop;
};

// Those of a group of records, each as its frames; -1 is one that is missing.
void add_windows(const std::vector<int64_t>& group, const WindowShape& shape, std::vector<std::vector<int64_t>>& to) {
  const auto end = static_cast<int64_t>(group.size());
  for (int64_t first = 0; first < end; first += shape.shift) {
    std::vector<int64_t> window;
    for (int64_t at = first; at < first + shape.size * shape.stride; at += shape.stride)
      window.push_back(at < end ? group[static_cast<size_t>(at)] : -1);
    if (!shape.drop || window.back() >= 0) to.push_back(window);
  }
}

// An epoch of them, one by one.
std::vector<std::vector<int64_t>> windows_of(Feeder& feeder) {
  std::vector<std::vector<int64_t>> all;
  while (const Batch batch = feeder.next()) {
    const TensorView ids = batch.at("id");
    const auto values = ids.as<int64_t>();
    const auto valid = batch.at("@valid").as<const bool>();
    for (size_t at = 0; at < values.size(); at++) {
      if (at % static_cast<size_t>(ids.shape[1]) == 0) all.emplace_back();
      all.back().push_back(valid[at] ? values[at] : -1);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a range of the records, and a shard of a range") {
  const Data data({300, 0, 1, 500, 199});
  const auto chosen = [&](const Fields& fields, const std::string& more = "") {
    std::vector<int64_t> all = epoch_of(with(data.pipeline(more + partial), fields));
    if (!more.empty()) {
      CHECK((all.size() < 20 || !std::is_sorted(all.begin(), all.end())));
      std::sort(all.begin(), all.end());
    }
    return all;
  };
  for (const std::string more : {"", "shuffle { block_size: '16KiB' }", "shuffle { mode: GLOBAL }",
                                 "shuffle { mode: BUFFER buffer_size: 40 }"}) {
    INFO(more);
    CHECK(chosen({{"source.range", "0%:90%"}}, more) == numbers(900));
    CHECK(chosen({{"source.range", "90%:100%"}}, more) == numbers(100, 900));
    CHECK(chosen({{"source.range", "90%:"}}, more) == numbers(100, 900));
    CHECK(chosen({{"source.range", ":12.5%"}}, more) == numbers(125));
    CHECK(chosen({{"source.range", "299:302"}}, more) == numbers(3, 299));
    CHECK(chosen({{"source.range", "990:5000"}}, more) == numbers(10, 990));
    CHECK(chosen({{"source.range", "5000:6000"}}, more).empty());
    CHECK(chosen({{"source.range", "10:10"}}, more).empty());
    for (const int shards : {1, 3, 7}) {
      std::vector<int64_t> all;
      for (int shard = 0; shard < shards; shard++) {
        const auto part = chosen({{"source.range", "100:701"},
                                  {"source.num_shards", std::to_string(shards)},
                                  {"source.shard_id", std::to_string(shard)}},
                                 more);
        CHECK(std::abs(static_cast<int64_t>(part.size()) - 601 / shards) <= 1);
        all.insert(all.end(), part.begin(), part.end());
      }
      CHECK(all == numbers(601, 100));
    }
  }
}

TEST_CASE("a range of compressed files") {
  const Data data({300, 200}, Compression::gzip);
  CHECK(epoch_of(data.pipeline(partial).with("source.range", "250:460")) == numbers(210, 250));
  CHECK(epoch_of(data.pipeline(partial + "epoch { repeat: 2 }").with("source.range", "299:301")) ==
        std::vector<int64_t>{299, 300, 299, 300});
}

TEST_CASE("an error that lies outside of what is chosen is not raised") {
  const Data data({100, 100, 100});
  std::filesystem::resize_file(data.path(1), std::filesystem::file_size(data.path(1)) - 1);  // record 99 of it is cut
  const Pipeline pipeline = data.pipeline("batch { global_batch_size: 1 }");
  const auto fed = [&](const std::string& range) {
    Feeder feeder(pipeline.with("source.range", range));
    std::vector<int64_t> all;
    while (const Batch batch = feeder.next()) all.push_back(batch.at("id").as<int64_t>()[0]);
    return all;
  };
  CHECK(fed("0:199") == numbers(199));
  CHECK(fed("50:60") == numbers(10, 50));
  std::vector<int64_t> behind = numbers(99, 200);
  CHECK(fed("200:299") == numbers(99, 201));  // good records are counted: 199 of them lie before the damage
  for (const std::string range : {"0:200", "199:", "0%:100%"}) {
    INFO(range);
    CHECK_THROWS_AS(fed(range), Error);
  }
}

TEST_CASE("files are interleaved as tf.data does, from any sample on") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; round++) {
    std::vector<int64_t> sizes(1 + random() % 9);
    for (int64_t& size : sizes) size = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 40);
    const size_t cycle_length = 1 + random() % 6;
    const auto block_length = static_cast<int64_t>(1 + random() % 9);
    const auto wanted = interleaved(sizes, cycle_length, block_length);
    INFO(round << ": " << sizes.size() << " files, " << cycle_length << " open, " << block_length << " in turn");

    std::vector<uint64_t> starts = {0};
    std::vector<uint32_t> files;
    for (const int64_t size : sizes) {
      files.push_back(static_cast<uint32_t>(files.size()));
      starts.push_back(starts.back() + static_cast<uint64_t>(size));
    }
    const flow::InterleaveSpec spec{static_cast<uint32_t>(cycle_length), static_cast<uint64_t>(block_length)};
    for (const size_t from : {size_t{0}, wanted.size() / 3, wanted.size() / 2, wanted.size()}) {
      flow::Sequence sequence(starts, files, spec, from);
      std::vector<std::pair<uint32_t, uint64_t>> got;
      for (flow::Run run; (run = sequence.next(1 + random() % 12)).count > 0;)
        for (uint64_t i = 0; i < run.count; i++) got.push_back({run.file, run.first + i});
      CHECK(std::equal(got.begin(), got.end(), wanted.begin() + static_cast<ptrdiff_t>(from), wanted.end()));
    }
  }
}

TEST_CASE("interleaved files through the feed") {
  const std::vector<int64_t> sizes = {3000, 0, 700, 1, 2500, 40};
  const Data data(sizes);
  std::vector<int64_t> starts = {0};
  for (const int64_t size : sizes) starts.push_back(starts.back() + size);
  for (const auto& [cycle_length, block_length] : {std::pair{1, 3}, {2, 1}, {3, 16}, {16, 5}, {4, 100'000}}) {
    INFO(cycle_length << " open, " << block_length << " in turn");
    std::vector<int64_t> wanted;
    for (const auto& [file, record] : interleaved(sizes, static_cast<size_t>(cycle_length), block_length))
      wanted.push_back(starts[file] + static_cast<int64_t>(record));
    const Pipeline pipeline = data.pipeline("interleave { cycle_length: " + std::to_string(cycle_length) +
                                            " block_length: " + std::to_string(block_length) + " }" + partial);
    CHECK(epoch_of(pipeline) == wanted);
    std::vector<int64_t> twice = wanted;
    twice.insert(twice.end(), wanted.begin(), wanted.end());
    CHECK(epoch_of(pipeline.with("epoch.repeat", "2")) == twice);
  }
}

TEST_CASE("epochs of so many steps go on from each other") {
  const Data data({90, 10});
  for (const std::string more :
       {"", "shuffle { block_size: '16KiB' } ", "shuffle { mode: GLOBAL } ", "interleave { cycle_length: 2 } "}) {
    INFO(more);
    const Pipeline batches = data.pipeline(more + "batch { global_batch_size: 8 }");
    std::vector<int64_t> endless;
    {
      Feeder feeder(batches.with("epoch.repeat", "-1"));
      for (int step = 0; step < 42; step++) {
        const Batch batch = feeder.next();
        const auto ids = batch.at("id").as<int64_t>();
        endless.insert(endless.end(), ids.begin(), ids.end());
      }
    }
    // A pass, whole, before the next begins; lanes change within the same step, the 13th.
    std::vector<int64_t> first(endless.begin(), endless.begin() + 13 * 8);
    std::sort(first.begin(), first.end());
    first.erase(std::unique(first.begin(), first.end()), first.end());
    CHECK(first == numbers(100));

    Feeder feeder(batches.with("epoch.steps", "14"));
    CHECK(feeder.steps_per_epoch() == 14);
    std::vector<int64_t> all;
    for (int epoch = 0; epoch < 3; epoch++) {
      const auto part = read_epoch(feeder).front().all();
      CHECK(part.size() == 14 * 8);
      all.insert(all.end(), part.begin(), part.end());
    }
    CHECK(all == endless);
  }
  CHECK_THROWS_WITH(Feeder(data.pipeline("epoch { steps: 3 repeat: 2 } batch { global_batch_size: 8 }")),
                    Catch::Contains("leave out `repeat`"));
}

TEST_CASE("windows over records") {
  const std::vector<int64_t> sizes = {300, 0, 7, 1, 2000, 12, 3};
  const Data data(sizes);
  struct Case {
    WindowShape shape;
    bool across;
  };
  const Case cases[] = {{{"size: 10 shift: 1", 10, 1, 1, true}, false},
                        {{"size: 4", 4, 4, 1, true}, false},
                        {{"size: 3 shift: 2 stride: 5", 3, 2, 5, true}, false},
                        {{"size: 5 shift: 7", 5, 7, 1, true}, true},
                        {{"size: 6 shift: 4 drop_remainder: false", 6, 4, 1, false}, false},
                        {{"size: 3 shift: 1 stride: 40 drop_remainder: false", 3, 1, 40, false}, false},
                        {{"size: 1 shift: 3", 1, 3, 1, true}, false},
                        {{"size: 300 shift: 100 stride: 2 drop_remainder: false", 300, 100, 2, false}, true}};
  for (const auto& [c, across] : cases) {
    std::vector<std::vector<int64_t>> wanted;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      if (!across) add_windows(numbers(size, begin), c, wanted);
      begin += size;
    }
    if (across) add_windows(numbers(begin), c, wanted);
    for (const std::string order : {"", "shuffle { mode: GLOBAL } ", "shuffle { mode: BUFFER buffer_size: 40 } ",
                                    "shuffle { block_size: '16KiB' buffer_size: 100 } "})
      for (const int world : {1, 3}) {
        INFO(c.text << " " << order << world);
        std::vector<std::vector<int64_t>> got(wanted.size() + 24);
        for (int rank = 0; rank < world; rank++) {
          Options options;
          options.rank = rank;
          options.world_size = world;
          Feeder feeder(data.pipeline(order + "window { " + c.text + (across ? " across_files: true" : "") +
                                      " } batch { global_batch_size: 24 last_batch_policy: PAD valid_mask: 'ok' }"),
                        options);
          CHECK(feeder.samples_per_epoch() == static_cast<int64_t>(wanted.size()));
          const int64_t each = 24 / world;
          while (const Batch batch = feeder.next()) {
            const TensorView ids = batch.at("id"), ok = batch.at("ok");
            REQUIRE(ids.shape.rank() == 2);
            REQUIRE(ids.shape[0] == each);
            REQUIRE(ids.shape[1] == c.size);
            REQUIRE(ok.shape[1] == c.size);
            int64_t valid = 0;
            for (int64_t i = 0; i < each; i++) {
              auto& window = got[static_cast<size_t>(static_cast<int64_t>(batch.step()) * 24 + rank * each + i)];
              for (int64_t f = 0; f < c.size; f++) {
                const auto at = static_cast<size_t>(i * c.size + f);
                window.push_back(ok.as<const bool>()[at] ? ids.as<const int64_t>()[at] : -1);
              }
              valid += window.front() >= 0;
            }
            CHECK(batch.valid_count() == valid);
          }
        }
        std::erase_if(got, [](const auto& window) { return window.empty() || window.front() < 0; });
        if (!order.empty() && wanted.size() > 20) {
          CHECK(got != wanted);
          std::sort(got.begin(), got.end());
          std::vector<std::vector<int64_t>> sorted = wanted;
          std::sort(sorted.begin(), sorted.end());
          CHECK(got == sorted);
        } else if (order.empty()) {
          CHECK(got == wanted);
          flow::PipelineSpec spec = flow::validate(data.pipeline(
              "window { " + c.text + (across ? " across_files: true" : "") + " } batch { global_batch_size: 24 }"));
          const flow::Plan plan(spec, flow::count_data(spec, 1, {}), {}, 1);
          flow::Walk walk(plan, {}, false);
          std::vector<flow::Ticket> tickets;
          for (flow::Step step; !step.ends_epoch;) walk.next(step, &tickets);
          uint64_t rows = 0;
          for (const flow::Ticket& ticket : tickets) rows += ticket.rows;
          CHECK(rows <= static_cast<uint64_t>(data.count()));  // frames that windows share are read once
        }
      }
  }
}

TEST_CASE("windows that make no sense are refused") {
  const Data data({10});
  const auto refusal = [&](const std::string& text) {
    try {
      Feeder feeder(
          data.pipeline("feature { name: 'v' dtype: INT64 kind: VARIABLE } batch { global_batch_size: 1 } output { "
                        "name: 'id' feature: 'id' } " +
                        text));
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  using Catch::Contains;
  CHECK_THAT(refusal("window { shift: 2 }"), Contains("window.size"));
  CHECK_THAT(refusal("window { size: 2 shift: -1 }"), Contains("window.shift"));
  CHECK_THAT(
      refusal("window { size: 2 across_files: true } shuffle { mode: BUFFER buffer_size: 5 shuffle_files: true }"),
      Contains("leave out one"));
  CHECK_THAT(refusal("window { size: 2 across_files: true } interleave { cycle_length: 2 }"),
             Contains("leave out one"));
  CHECK_THAT(refusal("window { size: 2 } output { name: 'v' feature: 'v' }"), Contains("no fixed shape"));
}

TEST_CASE("windows do not reach across a change of their key") {
  std::mt19937 random(11);
  struct Record {
    int64_t id, clip;
    size_t file;
  };
  const WindowShape shapes[] = {{"size: 3 shift: 1", 3, 1, 1, true},
                                {"size: 4 shift: 3 drop_remainder: false", 4, 3, 1, false},
                                {"size: 2 shift: 1 stride: 4", 2, 1, 4, true},
                                {"size: 5 shift: 2 stride: 2 drop_remainder: false", 5, 2, 2, false}};
  for (int round = 0; round < 24; round++) {
    const TempDir dir;
    std::vector<Record> records;
    int64_t clip = 0;
    for (size_t file = 0; file < 5; file++) {
      std::vector<std::string> written;
      for (auto left = file == 2 ? 0 : random() % 400; left > 0; left--) {
        if (random() % 9 == 0) clip = static_cast<int64_t>(random() % 4) - 1;  // which may be the same again
        records.push_back({static_cast<int64_t>(records.size()), clip, file});
        written.push_back(
            wire::example(wire::entry("id", wire::int64_feature({records.back().id})) +
                          wire::entry("clip", wire::int64_feature({clip})) +
                          wire::entry("name", wire::bytes_feature({std::string(static_cast<size_t>(clip + 1), 'n')}))));
      }
      write_records(dir.file("part-" + std::to_string(file)), written);
    }
    const WindowShape& shape = shapes[round % 4];
    const bool across = random() % 2, filtered = random() % 2, part = random() % 2;
    std::vector<Record> samples;
    for (const Record& record : records)
      if ((!filtered || record.id % 5 != 2) && (!part || record.id >= 100)) samples.push_back(record);
    std::vector<std::vector<int64_t>> wanted;
    for (size_t begin = 0, end = 0; begin < samples.size(); begin = end) {
      std::vector<int64_t> group;
      for (; end < samples.size() && samples[end].clip == samples[begin].clip &&
             (across || samples[end].file == samples[begin].file);
           end++)
        group.push_back(samples[end].id);
      add_windows(group, shape, wanted);
    }
    for (const std::string order : {"", "shuffle { mode: GLOBAL } ", "shuffle { mode: BUFFER buffer_size: 40 } ",
                                    "shuffle { block_size: '16KiB' buffer_size: 100 } "}) {
      const std::string text = "source { files: 'part-*' range: '" + std::string(part ? "100:" : "0:") +
                               "' index { dir: 'kept' } } " +
                               "feature { name: 'id' dtype: INT64 } feature { name: 'clip' dtype: INT64 } " +
                               "feature { name: 'name' dtype: BYTES } output { name: 'id' feature: 'id' } " + order +
                               (filtered ? "filter: 'mod(id, 5) != 2' " : "") + "window { " + shape.text + " key: '" +
                               (random() % 2 ? "clip" : "name") + "'" + (across ? " across_files: true" : "") +
                               " } batch { global_batch_size: 8 last_batch_policy: PARTIAL }";
      INFO(round << ": " << text);
      Feeder feeder(parse_pipeline(text, dir.path()));
      CHECK(feeder.samples_per_epoch() == static_cast<int64_t>(wanted.size()));
      for (int epoch = 0; epoch < 2; epoch++) {
        auto got = windows_of(feeder);
        if (!order.empty()) {
          std::sort(got.begin(), got.end());
          std::sort(wanted.begin(), wanted.end());
        }
        CHECK(got == wanted);
      }
    }
  }
}

TEST_CASE("a record without the key, and keys that make no sense") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 10; id++)  // 4 has no key: with a default of 7 it is one of the group before it
    records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                    (id == 4 ? "" : wire::entry("clip", wire::int64_feature({id < 5 ? 7 : 8})))));
  write_records(dir.file("part"), records);
  const auto fed = [&](const std::string& feature, const std::string& more) {
    Feeder feeder(parse_pipeline(
        "source { files: 'part' } feature { name: 'id' dtype: INT64 } feature { name: 'clip' " + feature +
            " } window { size: 4 shift: 1 key: 'clip' } output { name: 'id' feature: "
            "'id' } batch { global_batch_size: 1 } " +
            more,
        dir.path()));
    CHECK_THAT(feeder.plan_text(), Catch::Contains("window   2 groups of records that have the same 'clip'"));
    return windows_of(feeder);
  };
  const std::vector<std::vector<int64_t>> before = {{0, 1, 2, 3}}, behind = {{5, 6, 7, 8}, {6, 7, 8, 9}};
  auto wanted = before;
  wanted.insert(wanted.end(), behind.begin(), behind.end());
  CHECK(fed("dtype: INT64", "errors { on_error: SKIP_RECORD }") == wanted);
  wanted.insert(wanted.begin() + 1, {1, 2, 3, 4});
  CHECK(fed("dtype: INT64 default_value { int64_value: 7 }", "") == wanted);
  using Catch::Contains;
  CHECK_THROWS_WITH(fed("dtype: INT64", ""), Contains("record 4") && Contains("clip"));
  CHECK_THROWS_WITH(fed("dtype: INT64 kind: VARIABLE", ""), Contains("window.key: feature 'clip' is not one INT64"));
  CHECK_THROWS_WITH(fed("dtype: FLOAT32", ""), Contains("window.key: feature 'clip' is not one INT64"));
}

TEST_CASE("sets of numbers") {
  std::mt19937_64 random(3);
  for (const size_t words : {0, 1, 3, 8, 9, 40}) {
    std::vector<uint64_t> bits(words);
    for (uint64_t& word : bits) word = random() % 3 == 0 ? 0 : random() & random();
    const flow::NumberSet set(bits);
    uint64_t before = 0;
    for (uint64_t number = 0; number < words * 64 + 70; number++) {
      REQUIRE(set.before(number) == before);
      const bool has = number < words * 64 && (bits[number / 64] >> number % 64 & 1) != 0;
      REQUIRE(set.has(number) == has);
      if (has) REQUIRE(set.at(before++) == number);
    }
    CHECK(set.size() == before);
  }
}

TEST_CASE("a filter keeps the samples for which it is not 0, and is computed once") {
  const Data data({900, 0, 1, 1500, 599}), packed({900, 0, 1, 1500, 599}, Compression::gzip);
  const std::pair<std::string, int64_t> filters[] = {
      {"mod(id, 3) == 1", 3}, {"mod(id, 100) == 0", 100}, {"id >= 700 and id < 1600", 0}, {"id > 5000", -1}, {"1", 1}};
  for (const Compression compression : {Compression::none, Compression::gzip}) {
    const Data& set = compression == Compression::none ? data : packed;
    for (const auto& [filter, every] : filters)
      for (const std::string order :
           {"", "shuffle { block_size: '16KiB' buffer_size: 200 } ", "shuffle { mode: GLOBAL } ",
            "shuffle { mode: BUFFER buffer_size: 70 } ", "interleave { cycle_length: 2 } "}) {
        if (compression != Compression::none && !order.empty()) continue;
        INFO(filter << " " << order);
        std::vector<int64_t> wanted;
        for (int64_t id = 0; id < 3000; id++)
          if (every == 0 ? id >= 700 && id < 1600 : every > 0 && id % every == (every == 3 ? 1 : 0))
            wanted.push_back(id);
        const Pipeline pipeline =
            with(set.pipeline(order + partial), {{"filter", filter}, {"source.index.dir", set.dir().file("kept")}});
        Feeder feeder(pipeline);
        CHECK(feeder.samples_per_epoch() == static_cast<int64_t>(wanted.size()));
        for (int epoch = 0; epoch < 2; epoch++) {
          std::vector<int64_t> all = read_epoch(feeder).front().all();
          if (!order.empty()) std::sort(all.begin(), all.end());
          CHECK(all == wanted);
          REQUIRE(feeder.report().last_epoch);
          CHECK(feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds);
        }
      }
  }
}

TEST_CASE("@record of a filtered sample is its number in the source") {
  const Data data({900, 700});
  Feeder feeder(
      with(data.pipeline("output { name: 'record' feature: '@record' } output { name: 'id' feature: 'id' } " + partial),
           {{"filter", "mod(id, 7) == 3"}, {"source.range", "100:1500"}}));
  int64_t rows = 0;
  while (const Batch batch = feeder.next()) {
    const auto record = batch.at("record").as<int64_t>(), id = batch.at("id").as<int64_t>();
    CHECK(std::equal(record.begin(), record.end(), id.begin(), id.end()));
    rows += batch.rows();
  }
  CHECK(rows == 200);
}

TEST_CASE("what a filter keeps is kept, and made anew where anything has changed") {
  const Data data({500, 500});
  const auto kept = [&] {
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(data.dir().file("kept")))
      files += entry.path().string().ends_with(".feedline-filter");
    return files;
  };
  const auto fed = [&](const Fields& fields) {
    Fields all = {{"filter", "mod(id, 5) == 0"}, {"source.index.dir", data.dir().file("kept")}};
    all.insert(all.end(), fields.begin(), fields.end());
    return epoch_of(with(data.pipeline(partial), all)).size();
  };
  CHECK(fed({}) == 200);
  CHECK(kept() == 1);
  CHECK(fed({}) == 200);
  CHECK(fed({{"seed", "3"}}) == 200);
  CHECK(kept() == 1);
  CHECK(fed({{"filter", "mod(id, 4) == 0"}}) == 250);
  CHECK(fed({{"source.range", "0:100"}}) == 20);
  CHECK(kept() == 3);
  for (const auto& entry : std::filesystem::directory_iterator(data.dir().file("kept")))
    if (entry.path().string().ends_with(".feedline-filter")) {
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(20);
      file.put('\x55');
    }
  CHECK(fed({}) == 200);  // damaged: not believed
}

TEST_CASE("a filter that makes no sense is refused") {
  const Data data({10});
  const auto refusal = [&](const std::string& filter) {
    try {
      Feeder feeder(data.pipeline("batch { global_batch_size: 1 }").with("filter", filter));
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  CHECK_THAT(refusal("idd > 3"), Catch::StartsWith("filter: unknown name 'idd'; did you mean 'id'?"));
  CHECK_THAT(refusal("id >"), Catch::StartsWith("filter: "));
}

TEST_CASE("choices that make no sense are refused with the reason") {
  const Data data({10});
  const auto refusal = [&](const Fields& fields, const std::string& more = "") {
    try {
      Feeder feeder(with(data.pipeline(more + " batch { global_batch_size: 1 }"), fields));
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      return error.message();
    }
    return std::string("accepted");
  };
  using Catch::Contains;
  CHECK_THAT(refusal({{"source.range", "10"}}), Contains("where it begins and ends"));
  CHECK_THAT(refusal({{"source.range", "a:b"}}), Contains("two numbers"));
  CHECK_THAT(refusal({{"source.range", "0%:101%"}}), Contains("two numbers"));
  CHECK_THAT(refusal({{"source.range", "-1:5"}}), Contains("two numbers"));
  CHECK_THAT(refusal({{"source.range", "7:3"}}), Contains("ends before it begins"));
  CHECK_THAT(refusal({{"source.num_shards", "3"}, {"source.shard_id", "3"}}), Contains("it must be 0 to 2"));
  CHECK_THAT(refusal({}, "interleave { cycle_length: 0 }"), Contains("how many files"));
  CHECK_THAT(refusal({}, "interleave { cycle_length: 2 } shuffle { mode: BLOCK }"), Contains("random order"));
  CHECK_THAT(refusal({}, "interleave { cycle_length: 2 } shuffle { mode: GLOBAL }"), Contains("random order"));
  CHECK_THAT(refusal({}, "shuffle { mode: GLOBAL buffer_size: 10 }"), Contains("of no use"));

  const Data compressed({10, 10}, Compression::gzip);
  CHECK_THAT(refusal({}, "shuffle { mode: BUFFER }"), Contains("wants buffer_size"));
  CHECK_THAT(refusal({}, "shuffle { shuffle_files: true }"), Contains("of no use"));
  for (const char* more :
       {"shuffle { mode: GLOBAL }", "interleave { cycle_length: 2 }", "shuffle { mode: BUFFER buffer_size: 3 }"})
    CHECK_THROWS_WITH(Feeder(compressed.pipeline(std::string(more) + " batch { global_batch_size: 1 }")),
                      Contains("feedline split"));
}
