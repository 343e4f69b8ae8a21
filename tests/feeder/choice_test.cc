// Which samples are chosen, and in which order files give them: source.range, shards, interleave, and epochs with a
// given number of steps.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "data.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/feed/filter.h"
#include "flowgraph/feed/sample_reader.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/walk.h"
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
  Feeder feeder(pipeline.with("epoch.allow_empty", "true"));
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
  std::filesystem::resize_file(data.path(1), std::filesystem::file_size(data.path(1)) - 1);  // cuts record 99
  const Pipeline pipeline = data.pipeline("batch { global_batch_size: 1 }");
  const auto fed = [&](const std::string& range) {
    Feeder feeder(pipeline.with("source.range", range));
    std::vector<int64_t> all;
    while (const Batch batch = feeder.next()) all.push_back(batch.at("id").as<int64_t>()[0]);
    return all;
  };
  CHECK(fed("0:199") == numbers(199));
  CHECK(fed("50:60") == numbers(10, 50));
  std::vector<int64_t> after_damage = numbers(99, 200);
  CHECK(fed("200:299") == numbers(99, 201));  // the range counts good records, of which 199 lie before the damage
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
    // A pass is delivered whole before the next begins. The lanes change from one pass to the next within the same
    // step, the 13th.
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
                    Catch::Contains("remove one of the two"));
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
        INFO(filter << " " << order);
        std::vector<int64_t> wanted;
        for (int64_t id = 0; id < 3000; id++)
          if (every == 0 ? id >= 700 && id < 1600 : every > 0 && id % every == (every == 3 ? 1 : 0))
            wanted.push_back(id);
        const Pipeline pipeline =
            with(set.pipeline(order + partial),
                 {{"filter", filter}, {"source.index.dir", set.dir().file("kept")}, {"epoch.allow_empty", "true"}});
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
  CHECK(fed({}) == 200);  // a damaged file is not used
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
  CHECK_THAT(refusal({{"source.range", "10"}}), Contains("where the range begins and ends"));
  CHECK_THAT(refusal({{"source.range", "a:b"}}), Contains("is not a number of records"));
  CHECK_THAT(refusal({{"source.range", "0%:101%"}}), Contains("is not a number of records"));
  CHECK_THAT(refusal({{"source.range", "-1:5"}}), Contains("is not a number of records"));
  CHECK_THAT(refusal({{"source.range", "7:3"}}), Contains("ends before it begins"));
  CHECK_THAT(refusal({{"source.num_shards", "3"}, {"source.shard_id", "3"}}), Contains("it must be 0 to 2"));
  CHECK_THAT(refusal({}, "interleave { cycle_length: 0 }"), Contains("it must be 1 or more"));
  CHECK_THAT(refusal({}, "interleave { cycle_length: 2 } shuffle { mode: BLOCK }"), Contains("random order"));
  CHECK_THAT(refusal({}, "interleave { cycle_length: 2 } shuffle { mode: GLOBAL }"), Contains("random order"));
  CHECK_THAT(refusal({}, "shuffle { mode: GLOBAL buffer_size: 10 }"), Contains("it has no effect"));

  CHECK_THAT(refusal({}, "shuffle { mode: BUFFER }"), Contains("give shuffle.buffer_size"));
  CHECK_THAT(refusal({}, "shuffle { shuffle_files: true }"), Contains("it has no effect"));
}

TEST_CASE("how far a filter is, is told also of more bytes than a product of 64 bits holds") {
  const Data data({5000});
  const flow::PipelineSpec spec = flow::validate(
      with(data.pipeline(partial), {{"filter", "id > 3"}, {"source.index.dir", data.dir().file("kept")}}));
  flow::DataSet counted = flow::count_data(spec, 1, {});
  counted.bytes = uint64_t{1} << 60;
  std::vector<uint64_t> told;
  flow::apply_filter(spec, counted, {.threads = 1, .io = {}, .on_progress = [&](uint64_t done, uint64_t total) {
                                       CHECK(total == uint64_t{1} << 60);
                                       told.push_back(done);
                                     }});
  REQUIRE(!told.empty());
  CHECK(std::is_sorted(told.begin(), told.end()));
  CHECK(told.back() == uint64_t{1} << 60);
}

TEST_CASE("a file under two names is fed once, and warned of; in two sources it is fed twice") {
  const Data data({20, 30});
  std::filesystem::create_symlink(data.path(0), data.dir().file("part-linked.tfrecord"));
  std::filesystem::create_hard_link(data.path(1), data.dir().file("part-zz.tfrecord"));
  const Pipeline pipeline = data.pipeline(batch_of(10, "DROP"));
  CHECK(flow::count_data(flow::validate(pipeline), 1, {}).warnings ==
        std::vector<std::string>{"source.files: '" + data.path(0) + "' and '" +
                                 data.dir().file("part-linked.tfrecord") +
                                 "' are two names of one file, which is fed only once (and 1 more such name)"});
  Feeder feeder(pipeline);
  CHECK(read_epoch(feeder).front().all() == numbers(50));
  Feeder twice(
      parse_pipeline("source { files: 'part-000.tfrecord' } source { files: 'part-linked.tfrecord' } "
                     "feature { name: 'id' dtype: INT64 } " +
                         batch_of(10, "DROP"),
                     data.dir().path()));
  CHECK(read_epoch(twice).front().all().size() == 40);
}

TEST_CASE("a sample deep in a file is reached without reading what comes before it") {
  const Data data({20000});
  const flow::PipelineSpec spec = flow::validate(data.pipeline(batch_of(10, "DROP")));
  const flow::DataSet counted = flow::count_data(spec, 1, {});
  flow::SampleReader reader(counted, spec.sources[0], counted.files[0]);
  REQUIRE(reader.find(19000, true) == flow::SampleReader::Found::record);
  REQUIRE(reader.offset() > 2'000'000);
  CHECK(reader.bytes_read() < 1'000'000);
}
