// Rows that fail while they are written: counts never change, and the feed ends at the same step whatever the timing.
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "data.h"
#include "distributed.h"
#include "support/catch.h"
#include "support/npy.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

std::string name_of(int64_t id) { return "id-" + std::to_string(id); }

/// Returns what records have here besides the features of sample(): "name", by which rows are looked up, and "picture",
/// the bytes 0 to 255.
std::string more_of(int64_t id) {
  std::string pixels(256, '\0');
  std::iota(pixels.begin(), pixels.end(), '\0');
  return wire::entry("name", wire::bytes_feature({name_of(id)})) +
         wire::entry("picture", wire::bytes_feature({pixels}));
}
std::string named_sample(int64_t id) { return sample(id, more_of(id)); }
Data named(const std::vector<int64_t>& sizes) { return Data(sizes, Compression::none, more_of); }

/// Writes made.npy, whose row of the name id-N is N, and has no names for `broken`: what looks them up fails late.
/// made_odd.npy has the even ones of these names, too.
void break_rows(const TempDir& dir, const std::set<int64_t>& broken, int64_t count = 300) {
  for (const std::string table : {"made", "made_odd"}) {
    std::vector<int64_t> rows = {-1};
    std::string names = "of no record\n";
    for (int64_t id = 0; id < count; id++) {
      if (broken.contains(id) && (table == "made" || id % 2 != 0)) continue;
      rows.push_back(id);
      names += name_of(id) + '\n';
    }
    dir.write(table + ".npy", npy("<i8", "(" + std::to_string(rows.size()) + ",)", in_memory(rows)));
    dir.write(table + ".txt", names);
  }
}

std::string lookup(const std::string& output, const std::string& table) {
  return "output { name: '" + output + "' feature: 'name' lookup { table: '" + table + ".npy' keys_file: '" + table +
         ".txt' } } ";
}

const std::string name_feature = "feature { name: 'name' dtype: BYTES } ";
const std::string dense = name_feature +
                          "feature { name: 'b' dtype: BYTES length: 5 } output { name: 'id' feature: 'id' } " +
                          lookup("made", "made") + lookup("made_twice", "made") + lookup("made_odd", "made_odd") +
                          "output { name: 'b' feature: 'b' } ";
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
  const Data data = named({50, 50});
  break_rows(data.dir(), {73, 75, 90});
  for (const int count : {1, 2, 3}) {
    INFO(count << " replicas");
    Feeder feeder(data.pipeline(made + batch_of(6, "PARTIAL")), replicas(count));
    const End end = read_to_end(feeder);
    CHECK(ids_of(end) == numbers(72));
    REQUIRE(end.error);
    CHECK(end.error->category() == Category::wrong_value);
    CHECK_THAT(end.error->message(), Catch::Contains("id-73"));
    CHECK(end.error->place().file == data.path(1));
    CHECK(end.error->place().record == 23);
    CHECK(end.error->place().feature == "name");
    CHECK(end.error->place().offset > 0);
    CHECK_THROWS_WITH(feeder.next(count - 1), Catch::Contains("id-73"));
    feeder.set_epoch(1);
    CHECK(ids_of(read_to_end(feeder)) == numbers(72));
  }
}

TEST_CASE("RAISE: where it is asked for, the rows before one that fails late come first") {
  const Data data = named({100});
  for (const int64_t bad : {72, 73, 77}) {
    break_rows(data.dir(), {bad});
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
  for (int64_t id = 0; id < 100; id++) records.push_back(id == 45 ? "\xff" : named_sample(id));
  write_records(dir.file("broken"), records);
  records[45] = named_sample(45);
  write_records(dir.file("sound"), records);
  const auto pipeline = [&](const std::string& file, const std::string& window) {
    return parse_pipeline("source { files: '" + file +
                              "' } feature { name: 'id' dtype: INT64 } feature { name: 'picture' dtype: BYTES } "
                              "output { name: 'id' feature: 'id' } output { name: 'column' feature: 'picture' "
                              "decode_raw { shape: [1, 256, 1] layout: HWC } crop { size: [1, 1] mode: RANDOM } } " +
                              name_feature + lookup("made", "made") + window + batch_of(20, "DROP"),
                          dir.path());
  };
  for (const std::string& window : {std::string(), std::string("window { size: 2 shift: 2 } ")}) {
    break_rows(dir, {});
    std::map<int64_t, int> chosen;  // by id: the column of the picture
    Feeder sound(pipeline("sound", window));
    while (const Batch batch = sound.next())
      for (size_t row = 0; row < batch.at("id").as<int64_t>().size(); row++)
        chosen[batch.at("id").as<int64_t>()[row]] = batch.at("column").as<uint8_t>()[row];
    REQUIRE(chosen.size() == (window.empty() ? 100 : 80));
    CHECK(chosen[0] != chosen[2]);
    for (int64_t id = 0; !window.empty() && id < 80; id += 2) CHECK(chosen[id] == chosen[id + 1]);

    for (const std::string file : {"broken", "sound"})  // the record of 45 is bad, or its row
      for (const int ranks : {1, 2})
        for (const int count : {1, 2}) {
          INFO(file << " " << window << ranks << " ranks, " << count << " replicas");
          break_rows(dir, file == "broken" ? std::set<int64_t>() : std::set<int64_t>{45});
          int64_t last = -1;
          for (int rank = 0; rank < ranks; rank++) {
            Options options = replicas(count);
            options.rank = rank;
            options.world_size = ranks;
            options.deliver_before_error = true;
            Feeder feeder(pipeline(file, window), options);
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
                  CHECK(batch.at("column").as<uint8_t>()[row] == chosen[id]);
                  last = std::max(last, id);
                }
              }
          }
          CHECK(last >= 43);
          if (file == "broken" || ranks == 1) CHECK(last < 45);  // a rank knows only its own rows
        }
  }
}

TEST_CASE("a step that DROP leaves out is not written, so nothing in it can fail late") {
  const Data data = named({20});
  break_rows(data.dir(), {19});
  Feeder feeder(data.pipeline(made + batch_of(6, "DROP")));
  const End end = read_to_end(feeder);
  CHECK(ids_of(end) == numbers(18));
  CHECK_FALSE(end.error);
}

TEST_CASE("SKIP_RECORD: a row that fails late is filler, and changes no count") {
  const Data data = named({50, 0, 51});
  const std::set<int64_t> bad = {0, 7, 8, 9, 63, 100};
  break_rows(data.dir(), bad);
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
        for (const Error& error : report.errors) CHECK(error.category() == Category::wrong_value);
        CHECK(report.records == 2 * (101 - bad.size()));
        REQUIRE(report.last_epoch);
        CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
      }
}

TEST_CASE("filler of a row that fails late is the nearest good row in every dense tensor, and empty where rows vary") {
  const Data data = named({12});
  break_rows(data.dir(), {0, 3, 4, 5, 6, 7, 8, 9, 10, 11});
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
  const Data data = named({64});
  std::mt19937 random(5);
  for (int round = 0; round < 40; round++) {
    std::set<int64_t> bad;
    for (int64_t id = 0; id < 64; id++)
      if (random() % 4 < static_cast<unsigned>(round % 4)) bad.insert(id);
    break_rows(data.dir(), bad);
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

TEST_CASE(
    "names that are not known, rows that a table lacks and formulas fail in one batch, each for its own records") {
  const Data data({64}, Compression::none, [](int64_t id) {
    return more_of(id) + wire::entry("pair", wire::bytes_feature({"a" + name_of(id), "b" + name_of(id)}));
  });
  const std::set<int64_t> lost = {5, 20, 21}, unnamed = {7, 20, 40};
  break_rows(data.dir(), lost);
  std::string names;
  std::map<int64_t, int64_t> number_of;  // by id
  for (const int64_t id : numbers_without(64, unnamed)) {
    number_of.emplace(id, std::ssize(number_of));
    names += name_of(id) + '\n';
  }
  data.dir().write("words.txt", names);
  std::string pairs;
  std::map<std::string, int64_t> number_in_pairs;
  for (int64_t id = 0; id < 64; id++)
    for (const std::string& name : {"a" + name_of(id), "b" + name_of(id)}) {
      if (name == "bid-9" || name == "aid-20" || id == 50) continue;
      number_in_pairs.emplace(name, std::ssize(number_in_pairs));
      pairs += name + '\n';
    }
  data.dir().write("pairs.txt", pairs);
  std::set<int64_t> bad = {9, 33, 50};
  bad.insert(lost.begin(), lost.end());
  bad.insert(unnamed.begin(), unnamed.end());
  const std::string vocabulary =
                        "output { name: 'number' feature: 'name' vocabulary { keys_file: 'words.txt' } } "
                        "feature { name: 'pair' dtype: BYTES shape: 2 } "
                        "output { name: 'pair' feature: 'pair' vocabulary { keys_file: 'pairs.txt' } } ",
                    formula = "output { name: 'm' expression { formula: 'mod(1, id - 33)' } } ";
  for (const std::string& text : {made + vocabulary + formula, vocabulary + formula + made})
    for (const int batch : {8, 64})
      for (const int count : {1, 2}) {
        INFO("batches of " << batch << ", " << count << " replicas");
        Feeder feeder(data.pipeline(text + skip + batch_of(batch, "DROP")), replicas(count));
        for (int64_t first = 0; first < 64; first += batch / count) {
          const Batch got = feeder.next(static_cast<int>(first / (batch / count) % count));
          REQUIRE(got.rows() == batch / count);
          const auto valid = got.at("@valid").as<uint8_t>();
          const auto ids = got.at("id").as<int64_t>(), made_rows = got.at("made").as<int64_t>(),
                     found = got.at("number").as<int64_t>(), pair = got.at("pair").as<int64_t>();
          for (size_t row = 0; row < valid.size(); row++) {
            const int64_t id = first + static_cast<int64_t>(row);
            CHECK(valid[row] == (bad.contains(id) ? 0 : 1));
            if (valid[row]) CHECK(ids[row] == id);
            CHECK(made_rows[row] == ids[row]);
            CHECK(found[row] == number_of.at(ids[row]));
            CHECK(pair[2 * row] == number_in_pairs.at("a" + name_of(ids[row])));
            CHECK(pair[2 * row + 1] == number_in_pairs.at("b" + name_of(ids[row])));
          }
        }
        for (int replica = 0; replica < count; replica++) CHECK_FALSE(feeder.next(replica));
        const Report report = feeder.report();
        CHECK(report.bad_records == bad.size());
        CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
        std::map<int64_t, std::string> why;  // by record
        for (const Error& error : report.errors) why[error.place().record] = error.message();
        REQUIRE(why.size() == bad.size());
        CHECK_THAT(why[7], Catch::StartsWith("words.txt does not have the name 'id-7'"));
        CHECK_THAT(why[9], Catch::StartsWith("value 1: pairs.txt does not have the name 'bid-9'"));
        CHECK_THAT(why[50], Catch::StartsWith("value 0: pairs.txt does not have the name 'aid-50'"));
        CHECK_THAT(why[21], Catch::StartsWith("made.txt does not have the name 'id-21'"));
        CHECK_THAT(why[33], Catch::Contains("mod by 0"));
      }
}

TEST_CASE("records that do not parse and rows that fail late count for one limit, which ends the feed at one step") {
  const TempDir dir;
  std::vector<std::string> records;
  for (int64_t id = 0; id < 6000; id++) records.push_back(id == 1000 || id == 5500 ? "\xff" : named_sample(id));
  write_records(dir.file("a"), records);
  const auto pipeline = [&](const std::string& limit) {
    return parse_pipeline(
        "source { files: 'a' } feature { name: 'id' dtype: INT64 } output { name: 'id' feature: 'id' } " +
            name_feature + lookup("made", "made") + "batch { global_batch_size: 100 } errors { on_error: SKIP_RECORD " +
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
        break_rows(dir, c.broken, 6000);
        Feeder feeder(pipeline(c.limit), replicas(count));
        const End end = read_to_end(feeder);
        CHECK(end.got.front().ids.size() == c.steps);
        CHECK(end.error.has_value() == (c.steps < 60));
        if (end.error) CHECK_THAT(end.error->message(), Catch::Contains("errors.max_failure"));
      }
}

TEST_CASE("windows: a frame that fails late is filler; RAISE ends the feed before its window") {
  const Data data = named({30});
  break_rows(data.dir(), {13});
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
    break_rows(data.dir(), {17});
    Feeder feeder(data.pipeline(dense + window + batch_of(2, "DROP")), options);
    const End end = read_to_end(feeder);
    CHECK(ids_of(end) == numbers(before ? 15 : 12));
    CHECK(end.error);
  }
}

TEST_CASE("a state from before rows that fail late, and one from after them, go on at the same steps") {
  const Data data = named({60});
  break_rows(data.dir(), {7, 31});
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
  for (int64_t id = 0; id < 300; id++) {
    const bool is_record = id % 7 != 3 && (id < 100 || id >= 130);
    records.push_back(is_record ? named_sample(id) : "\xff");
  }
  write_records(dir.file("a"), records);
  break_rows(dir, {5, 6, 90, 131, 200});
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
            "feature: '@offset' } " +
                name_feature + lookup("made", "made") + formula + skip + order + batch_of(batch, "PAD"),
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
  const Data data = named({60});
  break_rows(data.dir(), {7, 31});
  Feeder feeder(data.pipeline(made + "shuffle { lanes: 2 } epoch { steps: 15 } " + skip + batch_of(6, "DROP")));
  for (int epoch = 0; epoch < 6; epoch++) CHECK_FALSE(read_to_end(feeder).error);
  const Report report = feeder.report();
  REQUIRE(report.last_epoch);
  CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
  CHECK(report.differing_epochs == 0);
}

TEST_CASE("what rows are made in is in the memory plan, once for each thread") {
  const Data data = named({60});
  break_rows(data.dir(), {});
  Options options;
  options.threads = 2;
  const Feeder feeder(data.pipeline(made + batch_of(6, "DROP")), options);
  CHECK_THAT(feeder.plan_text(), Catch::Contains("making rows"));
}

TEST_CASE("ranks: rows that fail late are filler in every mode, or end all ranks after the same steps") {
  const Data data = named({90});
  for (const std::string& mode : {std::string("SPLIT"), std::string("REPLICATE"), std::string("SCATTER")})
    for (const bool raise : {false, true})
      for (const int ranks : {1, 3}) {
        INFO(mode << (raise ? ", RAISE, " : ", SKIP_RECORD, ") << ranks << " ranks");
        break_rows(data.dir(), {50});
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
          const auto says_why = [](const std::string& text) { return text.find("id-50") != text.npos; };
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
