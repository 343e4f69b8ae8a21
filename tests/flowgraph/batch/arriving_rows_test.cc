// Rows that arrive from another rank: how their batches lie in memory, their shapes, and what their bytes say.
#include <cstring>
#include <numeric>

#include "feedline/error.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/plan/feed_facts.h"
#include "flowgraph/plan/plan.h"
#include "flowgraph/table/table.h"
#include "support/catch.h"
#include "support/npy.h"
#include "support/open_tables.h"
#include "support/temp_dir.h"

using namespace feedline;
using namespace feedline::flow;
using namespace feedline::test;
using Catch::Contains;

namespace {

// A pipeline with a table and values of any number, and the facts of the rank that reads.
struct Feed {
  Feed() {
    dir.write("t.npy", npy("<f4", "(5, 2)", in_memory(std::vector<float>(10))));
    spec =
        validate(parse_pipeline(
                     "source { files: 'a' } feature { name: 'id' dtype: INT64 } feature { name: 'v' dtype: INT64 kind: "
                     "VARIABLE } output { name: 'id' feature: 'id' } output { name: 'v' feature: 'v' } output { name: "
                     "'row' feature: 'id' lookup { table: 't.npy' on_device: true } } batch { global_batch_size: 4 }",
                     dir.path()),
                 [](const FilePatterns& patterns) {
                   return FileList{patterns.files, {}};
                 });
    packed = pack(spec).spec;
    auto data = std::make_shared<DataSet>();
    DataFile& file = data->files.emplace_back();
    file.index.records = data->samples = 100;
    file.samples = {0, 100};
    file.index.largest_record = 200;
    file.index.payload_bytes = 20'000;
    file.index.end = 21'600;
    file.index.entries = std::vector<io::IndexEntry>{{0, 0}, {21'600, 100}};
    facts = facts_of(Plan(packed, data, {}, 1, {}, nullptr, open_tables(spec, 1 << 20)));
  }
  std::string refused(const FeedFacts& other) const {
    try {
      facts_in(to_message(other), 3, packed);
      return "";
    } catch (const Error& error) {
      CHECK(error.category() == Category::bad_pipeline);
      return error.message();
    }
  }

  TempDir dir;
  PipelineSpec spec, packed;
  FeedFacts facts;
};

}  // namespace

TEST_CASE("a description of batches is refused unless it is that of the pipeline, and fits") {
  const Feed feed;
  CHECK(feed.refused(feed.facts).empty());
  const auto with = [&](auto change) {
    FeedFacts facts = feed.facts;
    change(facts);
    return feed.refused(facts);
  };
  for (const std::string& text :
       {with([](FeedFacts& f) { f.rows = 0; }), with([](FeedFacts& f) { f.rows = -4; }),
        with([](FeedFacts& f) { f.frames = 0; }), with([](FeedFacts& f) { f.frames = 2; }),
        with([](FeedFacts& f) { f.buffer_bytes = UINT64_MAX; }), with([](FeedFacts& f) { f.tensors.pop_back(); }),
        with([](FeedFacts& f) { f.tensors.push_back(f.tensors.back()); })})
    CHECK_THAT(text, Contains("rank 3 sent an invalid description of"));
  CHECK_THAT(with([](FeedFacts& f) { f.identity.global_batch = 0; }), Contains("its feed"));
  CHECK_THAT(with([](FeedFacts& f) { f.identity.mixed_sources = 2; }), Contains("its feed"));
  for (size_t t = 0; t < feed.facts.tensors.size(); t++) {
    INFO(feed.facts.tensors[t].name);
    const auto tensor = [&](auto change) { return with([&](FeedFacts& f) { change(f.tensors[t]); }); };
    for (const std::string& text :
         {tensor([](BatchTensor& b) { b.output += 1; }), tensor([](BatchTensor& b) { b.shape = {7}; }),
          tensor([](BatchTensor& b) { b.dtype = DType::float64; }), tensor([](BatchTensor& b) { b.offset += 1; }),
          tensor([](BatchTensor& b) { b.part = BatchTensor::Part::step_splits; }),
          tensor([](BatchTensor& b) { b.capacity = uint64_t{1} << 40; }),
          tensor([](BatchTensor& b) { b.offset = uint64_t{1} << 40; })})
      CHECK_THAT(text, Contains("rank 3 sent an invalid description of tensor"));
    CHECK_THAT(tensor([](BatchTensor& b) { b.dtype = static_cast<DType>(100); }), Contains("rank 3 has a value"));
  }
  CHECK_THAT(with([](FeedFacts& f) { f.tensors[0].capacity = 3; }), Contains("tensor '@valid'"));
}

TEST_CASE("rows that arrive fit their shapes, divide what they divide, and name rows that a table has") {
  const Feed feed;
  const PackedBatches batches(feed.spec, feed.facts);
  // The tensors: @valid, id, v.values, v.row_splits, numbers of rows of the table.
  const std::vector<Shape> shapes = {{3}, {3}, {5}, {4}, {3}};
  REQUIRE(feed.facts.tensors.size() == shapes.size());
  CHECK(batches.can_have(shapes, 3));
  CHECK_FALSE(batches.can_have(shapes, 2));
  CHECK_FALSE(batches.can_have(shapes, 5));
  CHECK_FALSE(batches.can_have(shapes, -1));
  const auto values = static_cast<int64_t>(feed.facts.tensors[2].capacity / 8);
  for (const auto& [t, shape, fits] : std::vector<std::tuple<size_t, Shape, bool>>{{1, {}, false},
                                                                                   {1, {3, 1}, false},
                                                                                   {2, {values}, true},
                                                                                   {2, {values + 1}, false},
                                                                                   {2, {-1}, false},
                                                                                   {2, {INT64_MAX}, false},
                                                                                   {3, {3}, false},
                                                                                   {4, {4}, false}}) {
    std::vector<Shape> other = shapes;
    other[t] = shape;
    INFO(t << " " << to_string(shape));
    CHECK(batches.can_have(other, 3) == fits);
  }

  std::vector<std::byte> memory(batches.buffer_bytes());
  const auto write = [&](size_t t, const auto& numbers) {
    std::memcpy(memory.data() + feed.facts.tensors[t].offset, numbers.data(), sizeof(numbers[0]) * numbers.size());
  };
  const auto refused = [&]() -> std::string {
    try {
      batches.check_arrived(memory.data(), shapes, 3, 6);
      return "";
    } catch (const Error& error) {
      return error.message();
    }
  };
  using Numbers = std::vector<int64_t>;
  const Numbers splits = {0, 2, 2, 5}, rows = {0, 5, 1};
  write(3, splits);
  write(4, rows);
  CHECK(refused().empty());
  for (const Numbers& other : {Numbers{1, 2, 2, 5}, Numbers{0, 2, 2, 6}, Numbers{0, 2, 2, 4}, Numbers{0, 6, 2, 5}}) {
    write(3, other);
    CHECK_THAT(refused(),
               Contains("rank 6 sent cannot be used: the offsets in 'v.row_splits' do not fit its 5 elements"));
  }
  write(3, splits);
  for (const Numbers& other : {Numbers{0, 6, 1}, Numbers{-1, 0, 0}, Numbers{0, 0, INT64_MIN}}) {
    write(4, other);
    CHECK_THAT(refused(), Contains("is not the number of a row of t.npy"));
  }
  write(4, rows);
  write(0, std::vector<uint8_t>{1, 2, 1});
  CHECK_THAT(refused(), Contains("'@valid' has a BOOL that is neither 0 nor 1"));
}
