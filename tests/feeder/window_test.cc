// Windows over records: what each contains, with several files, filters, ranges and every order, and the effect of
// window.key.
#include <algorithm>
#include <random>

#include "data.h"
#include "flowgraph/data/count_data.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/walk.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::test;

namespace {

// A window as pipeline.proto describes it.
struct WindowShape {
  std::string text;
  int64_t size, shift, stride;
  bool drop;
};

// Appends the windows of a group of records, each as the list of its frames; -1 is a missing frame.
void add_windows(const std::vector<int64_t>& group, const WindowShape& shape, std::vector<std::vector<int64_t>>& to) {
  const auto end = static_cast<int64_t>(group.size());
  for (int64_t first = 0; first < end; first += shape.shift) {
    std::vector<int64_t> window;
    for (int64_t at = first; at < first + shape.size * shape.stride; at += shape.stride)
      window.push_back(at < end ? group[static_cast<size_t>(at)] : -1);
    if (!shape.drop || window.back() >= 0) to.push_back(window);
  }
}

// Returns the windows of an epoch, in order.
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
          CHECK(rows <= static_cast<uint64_t>(data.count()));  // a frame that several windows share is read once
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
      Contains("remove window.across_files or shuffle.shuffle_files"));
  CHECK_THAT(refusal("window { size: 2 across_files: true } interleave { cycle_length: 2 }"),
             Contains("remove window.across_files or 'interleave'"));
  CHECK_THAT(refusal("window { size: 2 } output { name: 'v' feature: 'v' }"), Contains("does not have a fixed shape"));
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
        if (random() % 9 == 0) clip = static_cast<int64_t>(random() % 4) - 1;  // may be equal to the previous key
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
  for (int64_t id = 0; id < 10; id++)  // record 4 has no key; with a default of 7 it belongs to the group before it
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
  const std::vector<std::vector<int64_t>> before = {{0, 1, 2, 3}}, after = {{5, 6, 7, 8}, {6, 7, 8, 9}};
  auto wanted = before;
  wanted.insert(wanted.end(), after.begin(), after.end());
  CHECK(fed("dtype: INT64", "errors { on_error: SKIP_RECORD }") == wanted);
  wanted.insert(wanted.begin() + 1, {1, 2, 3, 4});
  CHECK(fed("dtype: INT64 default_value { int64_value: 7 }", "") == wanted);
  using Catch::Contains;
  CHECK_THROWS_WITH(fed("dtype: INT64", ""), Contains("record 4") && Contains("clip"));
  CHECK_THROWS_WITH(fed("dtype: INT64 kind: VARIABLE", ""),
                    Contains("window.key: feature 'clip' does not have exactly one INT64"));
  CHECK_THROWS_WITH(fed("dtype: FLOAT32", ""), Contains("window.key: feature 'clip' does not have exactly one INT64"));
}
