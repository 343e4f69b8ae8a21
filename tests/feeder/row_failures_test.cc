// Rows that fail while they are written: counts never change, and the feed ends at the same step whatever the timing.
#include <atomic>
#include <cstring>
#include <random>
#include <set>

#include "data.h"
#include "distributed.h"
#include "flowgraph/pipeline/row_writer_for_tests.h"
#include "flowgraph/pipeline/spec.h"
#include "flowgraph/rows/row_writer.h"
#include "support/catch.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

/// The ids of the records that cannot be made into rows of the outputs "made" and "made_twice"; "made_odd" can make those
/// with even ids.
std::set<int64_t> broken;
std::atomic<bool> scratch_was_shared{false};

/// Copies the id of a record, unless it is one of `broken`.
class FragileWriter final : public flow::RowWriter {
 public:
  explicit FragileWriter(bool odd_alone) : odd_alone_(odd_alone) {}
  uint64_t scratch_bytes() const noexcept override { return 100; }
  void write(std::span<const std::span<const std::byte>> values, const flow::RowNumbers&, std::byte* out, size_t stride,
             std::span<std::byte> scratch, flow::RowOutcome& outcome) const override {
    if (scratch.size() != 100) throw std::runtime_error("other scratch memory than was asked for");
    for (size_t row = 0; row < values.size(); row++) {
      int64_t id;
      std::memcpy(&id, values[row].data(), sizeof id);
      std::fill(scratch.begin(), scratch.end(), static_cast<std::byte>(id));
      if (broken.contains(id) && (!odd_alone_ || id % 2 != 0)) {
        std::memset(out + row * stride, 0xee, sizeof id);
        outcome.failed.push_back(
            {static_cast<uint32_t>(row), Category::bad_image, -1, "picture " + std::to_string(id) + " is broken"});
      } else {
        std::memcpy(out + row * stride, &id, sizeof id);
      }
      for (const std::byte byte : scratch)
        if (byte != static_cast<std::byte>(id)) scratch_was_shared = true;
    }
  }

 private:
  const bool odd_alone_;
};

/// Makes the number by which random choices for a row are drawn.
class NumberWriter final : public flow::RowWriter {
 public:
  uint64_t scratch_bytes() const noexcept override { return 0; }
  void write(std::span<const std::span<const std::byte>> values, const flow::RowNumbers& rows, std::byte* out,
             size_t stride, std::span<std::byte>, flow::RowOutcome&) const override {
    for (size_t row = 0; row < values.size(); row++) {
      const auto number = static_cast<int64_t>(rows.sample(row));
      std::memcpy(out + row * stride, &number, sizeof number);
    }
  }
};

/// While it lives, outputs whose names begin with "made" are made by FragileWriter, which fails for these ids, and those
/// named "number" by NumberWriter.
class Fragile {
 public:
  explicit Fragile(std::set<int64_t> ids) {
    broken = std::move(ids);
    flow::row_writer_for_tests = [](const flow::OutputSpec& output) -> std::shared_ptr<const flow::RowWriter> {
      if (output.name == "number") return std::make_shared<NumberWriter>();
      return output.name.starts_with("made") ? std::make_shared<FragileWriter>(output.name == "made_odd") : nullptr;
    };
  }
  ~Fragile() {
    flow::row_writer_for_tests = nullptr;
    CHECK_FALSE(scratch_was_shared);
  }
};

const std::string dense =
    "feature { name: 'b' dtype: BYTES length: 5 } output { name: 'id' feature: 'id' } "
    "output { name: 'made' feature: 'id' } output { name: 'made_twice' feature: 'id' } "
    "output { name: 'made_odd' feature: 'id' } output { name: 'b' feature: 'b' } ";
const std::string made = dense + "feature { name: 't' dtype: BYTES kind: VARIABLE } output { name: 't' feature: 't' } ";
const std::string skip = "errors { on_error: SKIP_RECORD } ";

struct End {
  std::vector<Epoch> got;
  std::optional<Error> error;
};

/// Reads until an error or the end of the epoch. This thread serves the replicas in turn.
End read_to_end(Feeder& feeder) {
  End end{std::vector<Epoch>(static_cast<size_t>(feeder.replicas())), {}};
  std::vector<std::string> messages;
  for (bool ended = false; !ended;)
    for (int replica = 0; replica < feeder.replicas(); replica++) {
      try {
        if (const Batch batch = feeder.next(replica))
          add_batch(end.got[static_cast<size_t>(replica)], batch);
        else
          ended = true;
      } catch (const Error& error) {
        ended = true;
        end.error = error;
        messages.push_back(error.message());
      }
    }
  if (end.error) CHECK(messages == std::vector<std::string>(end.got.size(), messages.front()));
  return end;
}

/// Returns the ids of all replicas, step by step.
std::vector<int64_t> ids_of(const End& end) {
  std::vector<int64_t> all;
  for (size_t step = 0; step < end.got.front().ids.size(); step++)
    for (const Epoch& replica : end.got) {
      REQUIRE(replica.ids.size() == end.got.front().ids.size());
      all.insert(all.end(), replica.ids[step].begin(), replica.ids[step].end());
    }
  return all;
}

std::vector<int64_t> numbers_without(int64_t count, const std::set<int64_t>& left_out) {
  std::vector<int64_t> all = numbers(count);
  std::erase_if(all, [&](int64_t id) { return left_out.contains(id); });
  return all;
}

}  // namespace

TEST_CASE("RAISE: a row that fails late ends the feed after the last whole step, for all replicas") {
  const Data data({50, 50});
  const Fragile fragile({73, 75, 90});
  for (const int count : {1, 2, 3}) {
    INFO(count << " replicas");
    Feeder feeder(data.pipeline(made + batch_of(6, "PARTIAL")), replicas(count));
    const End end = read_to_end(feeder);
    CHECK(ids_of(end) == numbers(72));
    REQUIRE(end.error);
    CHECK(end.error->category() == Category::bad_image);
    CHECK(end.error->message() == "picture 73 is broken");
    CHECK(end.error->place().file == data.path(1));
    CHECK(end.error->place().record == 23);
    CHECK(end.error->place().feature == "id");
    CHECK(end.error->place().offset > 0);
    CHECK_THROWS_WITH(feeder.next(count - 1), Catch::Contains("picture 73 is broken"));
    feeder.set_epoch(1);
    CHECK(ids_of(read_to_end(feeder)) == numbers(72));
  }
}

TEST_CASE("RAISE: where it is asked for, the rows before one that fails late come first") {
  const Data data({100});
  for (const int64_t bad : {72, 73, 77}) {
    const Fragile fragile({bad});
    for (const int count : {1, 2, 3}) {
      INFO(bad << ", " << count << " replicas");
      Options options = replicas(count);
      options.deliver_before_error = true;
      Feeder feeder(data.pipeline(made + batch_of(6, "PARTIAL")), options);
      const End end = read_to_end(feeder);
      CHECK(ids_of(end) == numbers(bad));
      CHECK(end.error);
    }
  }
}

TEST_CASE("random choices for the rows before an error are those of a feed without it, on every rank and replica") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 100; id++) records.push_back(id == 45 ? "\xff" : sample(id));
  write_records(dir.file("broken"), records);
  records[45] = sample(45);
  write_records(dir.file("sound"), records);
  for (const std::string file : {"broken", "sound"})  // the record of 45 is bad, or its row
    for (const std::string& window : {std::string(), std::string("window { size: 2 shift: 2 } ")})
      for (const int ranks : {1, 2})
        for (const int count : {1, 2}) {
          INFO(file << " " << window << ranks << " ranks, " << count << " replicas");
          const Fragile fragile(file == "broken" ? std::set<int64_t>() : std::set<int64_t>{45});
          const int64_t frames = window.empty() ? 1 : 2;
          const Pipeline pipeline =
              parse_pipeline("source { files: '" + file + "' } feature { name: 'id' dtype: INT64 } " +
                                 "output { name: 'id' feature: 'id' } output { name: 'number' feature: 'id' } "
                                 "output { name: 'made' feature: 'id' } " +
                                 window + batch_of(20, "DROP"),
                             dir.path());
          int64_t last = -1;
          for (int rank = 0; rank < ranks; rank++) {
            Options options = replicas(count);
            options.rank = rank;
            options.world_size = ranks;
            options.deliver_before_error = true;
            Feeder feeder(pipeline, options);
            for (bool ended = false; !ended;)
              for (int replica = 0; replica < count && !ended; replica++) {
                Batch batch;
                try {
                  batch = feeder.next(replica);
                } catch (const Error&) {
                }
                ended = !batch;
                if (ended) break;
                const auto valid = batch.at("@valid").as<uint8_t>();
                for (size_t row = 0; row < valid.size(); row++) {
                  if (!valid[row]) continue;
                  const int64_t id = batch.at("id").as<int64_t>()[row];
                  CHECK(batch.at("number").as<int64_t>()[row] == id / frames);
                  last = std::max(last, id);
                }
              }
          }
          CHECK(last >= 43);
          if (file == "broken" || ranks == 1) CHECK(last < 45);  // a rank knows only its own rows
        }
}

TEST_CASE("a step that DROP leaves out is not written, so nothing in it can fail late") {
  const Data data({20});
  const Fragile fragile({19});
  Feeder feeder(data.pipeline(made + batch_of(6, "DROP")));
  const End end = read_to_end(feeder);
  CHECK(ids_of(end) == numbers(18));
  CHECK_FALSE(end.error);
}

TEST_CASE("SKIP_RECORD: a row that fails late is filler, and changes no count") {
  const Data data({50, 0, 51});
  const std::set<int64_t> bad = {0, 7, 8, 9, 63, 100};
  const Fragile fragile(bad);
  for (const std::string& order : {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 40 } "),
                                   std::string("shuffle { mode: GLOBAL } ")})
    for (const std::string& policy : {std::string("PARTIAL"), std::string("PAD")})
      for (const int count : {1, 2}) {
        INFO(order << policy << ", " << count << " replicas");
        Feeder feeder(data.pipeline(made + order + skip + batch_of(6, policy)), replicas(count));
        for (int epoch = 0; epoch < 2; epoch++) {
          const End end = read_to_end(feeder);
          CHECK_FALSE(end.error);
          CHECK(end.got.front().ids.size() == 17);
          std::vector<int64_t> ids = ids_of(end);
          std::sort(ids.begin(), ids.end());
          CHECK(ids == numbers_without(101, bad));
        }
        const Report report = feeder.report();
        CHECK(report.bad_records == bad.size());
        REQUIRE(report.errors.size() == bad.size());
        for (const Error& error : report.errors) CHECK(error.category() == Category::bad_image);
        CHECK(report.records == 2 * (101 - bad.size()));
        REQUIRE(report.last_epoch);
        CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
      }
}

TEST_CASE("filler of a row that fails late is the nearest good row in every dense tensor, and empty where rows vary") {
  const Data data({12});
  const Fragile fragile({0, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  Feeder feeder(data.pipeline(made + skip + batch_of(6, "DROP")));
  const Batch first = feeder.next();
  REQUIRE(first);
  const std::vector<int64_t> wanted = {1, 1, 2, 2, 2, 2};
  const auto ids = first.at("id").as<int64_t>(), rows = first.at("made").as<int64_t>();
  CHECK(std::vector<int64_t>(ids.begin(), ids.end()) == wanted);
  CHECK(std::vector<int64_t>(rows.begin(), rows.end()) == wanted);
  for (size_t row = 0; row < 6; row++) CHECK(first.at("b").as<uint8_t>()[5 * row] == wanted[row]);
  const auto valid = first.at("@valid").as<uint8_t>();
  CHECK(std::vector<int>(valid.begin(), valid.end()) == std::vector<int>{0, 1, 1, 0, 0, 0});
  const auto splits = first.at("t.row_splits").as<int64_t>();
  CHECK(std::vector<int64_t>(splits.begin(), splits.end()) == std::vector<int64_t>{0, 0, 1, 3, 3, 3, 3});
  CHECK(first.valid_count() == 2);

  const Batch second = feeder.next();  // has no good row
  CHECK(second.valid_count() == 0);
  CHECK(second.rows() == 6);
  for (const int64_t value : second.at("made").as<int64_t>()) CHECK(value == 0);
  for (const int64_t value : second.at("id").as<int64_t>()) CHECK(value == 0);
}

TEST_CASE("whichever rows and outputs fail, good rows stay as they are, and filler is one good row in all tensors") {
  const Data data({64});
  std::mt19937 random(5);
  for (int round = 0; round < 40; round++) {
    std::set<int64_t> bad;
    for (int64_t id = 0; id < 64; id++)
      if (random() % 4 < static_cast<unsigned>(round % 4)) bad.insert(id);
    const Fragile fragile(bad);
    for (const int batch : {8, 64})
      for (const int count : {1, 2}) {
        INFO("round " << round << ", batches of " << batch << ", " << count << " replicas");
        Feeder feeder(data.pipeline(made + skip + batch_of(batch, "DROP")), replicas(count));
        for (int64_t first = 0; first < 64; first += batch / count) {
          const Batch got = feeder.next(static_cast<int>(first / (batch / count) % count));
          REQUIRE(got.rows() == batch / count);
          const auto valid = got.at("@valid").as<uint8_t>();
          const auto ids = got.at("id").as<int64_t>();
          for (size_t row = 0; row < valid.size(); row++) {
            const int64_t id = first + static_cast<int64_t>(row);
            CHECK(valid[row] == (bad.contains(id) ? 0 : 1));
            if (valid[row]) CHECK(ids[row] == id);
            for (const char* output : {"made", "made_twice", "made_odd"})
              CHECK(got.at(output).as<int64_t>()[row] == ids[row]);
            if (got.valid_count() > 0) CHECK_FALSE(bad.contains(ids[row]));
          }
        }
      }
  }
}

TEST_CASE("records that do not parse and rows that fail late count for one limit, which ends the feed at one step") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 6000; id++) records.push_back(id == 1000 || id == 5500 ? "\xff" : sample(id));
  write_records(dir.file("a"), records);
  const auto pipeline = [&](const std::string& limit) {
    return parse_pipeline(
        "source { files: 'a' } feature { name: 'id' dtype: INT64 } output { name: 'id' feature: 'id' } "
        "output { name: 'made' feature: 'id' } batch { global_batch_size: 100 } "
        "errors { on_error: SKIP_RECORD " +
            limit + " }",
        dir.path());
  };
  struct Case {
    std::set<int64_t> broken;
    std::string limit;
    size_t steps;
  };
  for (const Case& c : std::vector<Case>{{{10, 2010, 3010, 4010}, "max_failures: 3", 30},
                                         {{10, 20, 30}, "max_failures: 2", 0},
                                         {{10, 2010}, "max_failures: 4", 60},
                                         {{4010}, "max_failure_rate: 0.0003", 40}})
    for (const int count : {1, 4})
      for (int again = 0; again < 3; again++) {
        INFO(c.limit << ", " << count << " replicas");
        const Fragile fragile(c.broken);
        Feeder feeder(pipeline(c.limit), replicas(count));
        const End end = read_to_end(feeder);
        CHECK(end.got.front().ids.size() == c.steps);
        CHECK(end.error.has_value() == (c.steps < 60));
        if (end.error) CHECK_THAT(end.error->message(), Catch::Contains("errors.max_failure"));
      }
}

TEST_CASE("windows: a frame that fails late is filler; RAISE ends the feed before its window") {
  const Data data({30});
  const Fragile fragile({13});
  const std::string window = "window { size: 3 shift: 3 } ";
  {
    Feeder feeder(data.pipeline(dense + window + skip + batch_of(2, "DROP")));
    const End end = read_to_end(feeder);
    CHECK(end.got[0].ids ==
          std::vector<std::vector<int64_t>>{
              {0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}, {12, 14, 15, 16, 17}, numbers(6, 18), numbers(6, 24)});
    CHECK(end.got[0].valid == std::vector<int64_t>(5, 2));
    CHECK(feeder.report().bad_records == 1);
  }
  for (const bool before : {false, true}) {
    Options options;
    options.deliver_before_error = before;
    const Fragile last({17});
    Feeder feeder(data.pipeline(dense + window + batch_of(2, "DROP")), options);
    const End end = read_to_end(feeder);
    CHECK(ids_of(end) == numbers(before ? 15 : 12));
    CHECK(end.error);
  }
}

TEST_CASE("a state from before rows that fail late, and one from after them, go on at the same steps") {
  const Data data({60});
  const Fragile fragile({7, 31});
  const Pipeline pipeline = data.pipeline(made + "shuffle { mode: GLOBAL } " + skip + batch_of(6, "DROP"));
  Feeder whole(pipeline, replicas(2));
  const End all = read_to_end(whole);
  for (const int64_t step : {int64_t{0}, int64_t{3}, int64_t{9}}) {
    Feeder feeder(pipeline, replicas(2));
    feeder.set_state(whole.get_state(0, step));
    const End rest = read_to_end(feeder);
    for (size_t replica = 0; replica < 2; replica++) {
      auto wanted = all.got[replica].ids;
      wanted.erase(wanted.begin(), wanted.begin() + step);
      CHECK(rest.got[replica].ids == wanted);
    }
  }
}

TEST_CASE("what filler holds does not depend on where a feed began") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 300; id++) records.push_back(id % 7 == 3 || (id >= 100 && id < 130) ? "\xff" : sample(id));
  write_records(dir.file("a"), records);
  const Fragile fragile({5, 6, 90, 131, 200});
  for (const std::string& order :
       {std::string(), std::string("shuffle { block_size: '16KiB' buffer_size: 40 } "),
        std::string("shuffle { mode: GLOBAL } "), std::string("shuffle { mode: BUFFER buffer_size: 30 } ")})
    for (const int batch : {1, 8, 48})
      for (const int64_t zero : {-1, 1}) {  // a formula that refuses some records, too
        INFO(order << "batches of " << batch << ", " << zero);
        const std::string formula = zero < 0 ? "" : "output { name: 'm' expression { formula: 'mod(1, id - 150)' } } ";
        const Pipeline pipeline = parse_pipeline(
            "source { files: 'a' } feature { name: 'id' dtype: INT64 } feature { name: 'x' dtype: FLOAT32 "
            "shape: 3 } feature { name: 'b' dtype: BYTES length: 5 } output { name: 'id' feature: 'id' } "
            "output { name: 'x' feature: 'x' } output { name: 'b' feature: 'b' } output { name: 'at' "
            "feature: '@offset' } output { name: 'made' feature: 'id' } " +
                formula + skip + order + batch_of(batch, "PAD"),
            dir.path());
        Feeder straight(pipeline), again(pipeline);
        const auto wanted = epoch_of(straight).front();
        for (size_t step = 1; step < wanted.size(); step += 1 + wanted.size() / 12) {
          again.set_state(again.get_state(0, static_cast<int64_t>(step)));
          CHECK(epoch_of(again).front() == std::vector(wanted.begin() + static_cast<int64_t>(step), wanted.end()));
        }
      }
}

TEST_CASE("where no row is good, filler is made of zeros in every mode") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 6; id++)
    records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                    wire::entry("raw", wire::bytes_feature({id == 2 ? "ab" : "abc"})) +
                                    (id == 4 ? "" : wire::entry("x", wire::float_feature({static_cast<float>(id)})))));
  write_records(dir.file("data"), records);
  const std::string text =
      "source { files: 'data' } feature { name: 'id' dtype: INT64 } feature { name: 'raw' dtype: BYTES } "
      "feature { name: 'x' dtype: FLOAT32 } output { name: 'label' feature: 'id' } "
      "output { name: 'p' dtype: FLOAT32 feature: 'raw' decode_raw { shape: [3] } normalize { mean: 100 std: 10 } } "
      "output { name: 'c' feature: 'id' one_hot { classes: 6 } } "
      "output { name: 's' stack { features: 'x' } dtype: FLOAT16 normalize { mean: 1 std: 2 } } "
      "output { name: 'y' dtype: FLOAT32 expression { formula: 'x + 1' } } "
      "errors { on_error: SKIP_RECORD } ";
  std::vector<std::string> modes = {"SPLIT", "REPLICATE", "SCATTER"};
  std::vector<std::vector<std::string>> texts;
  for (const std::string& mode : modes) {
    Feeder feeder(parse_pipeline(text + "distribute { mode: " + mode + " } " + batch_of(1, "DROP"), dir.path()));
    auto& of_mode = texts.emplace_back();
    while (const Batch batch = feeder.next()) {
      of_mode.push_back(text_of(batch));
      if (batch.step() != 2 && batch.step() != 4) continue;
      CHECK(batch.valid_count() == 0);
      CHECK(batch.at("label").as<int64_t>()[0] == 0);
      for (const float value : batch.at("p").as<float>()) CHECK(value == -10);
      for (const float value : batch.at("c").as<float>()) CHECK(value == 0);
      CHECK(batch.at("y").as<float>()[0] == 0);
    }
    CHECK(of_mode.size() == 6);
    CHECK(of_mode == texts[0]);
  }
}

TEST_CASE("an epoch of so many steps: passes add up although rows fail late") {
  const Data data({60});
  const Fragile fragile({7, 31});
  Feeder feeder(data.pipeline(made + "shuffle { lanes: 2 } epoch { steps: 15 } " + skip + batch_of(6, "DROP")));
  for (int epoch = 0; epoch < 6; epoch++) CHECK_FALSE(read_to_end(feeder).error);
  const Report report = feeder.report();
  REQUIRE(report.last_epoch);
  CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
  CHECK(report.differing_epochs == 0);
}

TEST_CASE("what rows are made in is in the memory plan, once for each thread") {
  const Data data({60});
  const Fragile fragile({});
  Options options;
  options.threads = 2;
  const Feeder feeder(data.pipeline(made + batch_of(6, "DROP")), options);
  CHECK_THAT(feeder.plan_text(), Catch::Contains("making rows"));
}

TEST_CASE("ranks: rows that fail late are filler in every mode, or end all ranks after the same steps") {
  const Data data({90});
  for (const std::string& mode : {std::string("SPLIT"), std::string("REPLICATE"), std::string("SCATTER")})
    for (const bool raise : {false, true})
      for (const int ranks : {1, 3}) {
        INFO(mode << (raise ? ", RAISE, " : ", SKIP_RECORD, ") << ranks << " ranks");
        const Fragile fragile({50});
        const Pipeline pipeline = data.pipeline(made + (raise ? "" : skip) + batch_of(6, "DROP"));
        std::vector<std::unique_ptr<Communicator>> ends = communicators_between_threads(ranks);
        std::vector<int> steps(static_cast<size_t>(ranks)), valid(static_cast<size_t>(ranks));
        const auto thrown = side_by_side(ranks, [&](int rank) {
          const auto r = static_cast<size_t>(rank);
          Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(std::move(ends[r]), 2));
          for (bool ended = false; !ended;)
            for (int replica = 0; replica < 2; replica++) {
              const Batch batch = feeder.next(replica);
              if ((ended = !batch)) continue;
              if (replica == 0) steps[r]++;
              valid[r] += static_cast<int>(batch.valid_count());
              if (batch.rows() != (mode == "REPLICATE" ? 6 : 6 / (2 * ranks))) throw std::runtime_error("other rows");
            }
        });
        if (raise) {
          const auto says_why = [](const std::string& text) { return text.find("picture 50 is broken") != text.npos; };
          if (mode == "SPLIT") {  // the other ranks may have come to their end before they hear of it
            CHECK(std::any_of(thrown.begin(), thrown.end(), says_why));
            CHECK(std::find(steps.begin(), steps.end(), 8) != steps.end());
            continue;
          }
          CHECK(std::all_of(thrown.begin(), thrown.end(), says_why));
          CHECK(steps == std::vector<int>(static_cast<size_t>(ranks), 8));
        } else {
          CHECK(thrown == std::vector<std::string>(static_cast<size_t>(ranks)));
          CHECK(steps == std::vector<int>(static_cast<size_t>(ranks), 15));
          const int all = std::accumulate(valid.begin(), valid.end(), 0);
          CHECK(all == (mode == "REPLICATE" ? 89 * 2 * ranks : 89));
        }
      }
}
