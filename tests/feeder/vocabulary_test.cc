// Numbers of names through the whole feed: which number each name becomes, and what becomes of unknown names.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>

#include "data.h"
#include "distributed.h"
#include "flowgraph/rows/fingerprint.h"
#include "support/catch.h"
#include "support/npy.h"
#include "support/ranks.h"

using namespace feedline;
using namespace feedline::test;

namespace {

constexpr int64_t known_words = 70;

/// The word with this number in words.txt. Words from known_words on are not in the file.
std::string word_of(int64_t number) { return "word " + std::to_string(number * 37 % 1000); }

/// The number of value i of the feature `tags` of a record.
int64_t tag_of(int64_t id, int64_t i) { return (id * 7 + i * 3) % known_words; }

/// Records that have a word, of the number id % known_words, and as many tags as `tags` says. words.txt has the words.
class Words {
 public:
  explicit Words(int64_t count, int64_t tags = 4, const std::function<int64_t(int64_t id)>& number_of = {},
                 const std::function<int64_t(int64_t id, int64_t i)>& number_of_tag = tag_of)
      : tags_(tags) {
    std::vector<std::string> records;
    for (int64_t id = 0; id < count; id++) {
      std::vector<std::string> tag_words;
      for (int64_t i = 0; i < tags; i++) tag_words.push_back(word_of(number_of_tag(id, i)));
      records.push_back(wire::example(
          wire::entry("id", wire::int64_feature({id})) +
          wire::entry("word", wire::bytes_feature({word_of(number_of ? number_of(id) : id % known_words)})) +
          wire::entry("tags", wire::bytes_feature(tag_words))));
    }
    write_records(dir_.file("words.tfrecord"), records);
    std::string names;
    for (int64_t number = 0; number < known_words; number++) names += word_of(number) + (number % 2 ? "\r\n" : "\n");
    dir_.write("words.txt", names);
  }

  Pipeline pipeline(const std::string& more) const {
    return parse_pipeline(
        fmt::format(
            "source {{ files: 'words.tfrecord' }} feature {{ name: 'id' dtype: INT64 }} feature {{ name: 'word' "
            "dtype: BYTES }} feature {{ name: 'tags' dtype: BYTES shape: [2, {}] }} output {{ name: 'id' "
            "feature: 'id' }} ",
            tags_ / 2) +
            more,
        dir_.path());
  }
  std::string file() const { return dir_.file("words.tfrecord"); }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
  int64_t tags_;
};

const std::string number_output = "output { name: 'number' feature: 'word' vocabulary { keys_file: 'words.txt' } } ";
const std::string tags_output =
    "output { name: 'tags' feature: 'tags' dtype: INT32 vocabulary { keys_file: 'words.txt' unknown: -1 } } ";

/// Adds the ids of a batch's valid rows. Throws if a row has other numbers than its record has words. Several ranks do
/// so at the same time, so it uses no macro of Catch2.
void check_numbers(const Batch& batch, std::vector<int64_t>& ids) {
  const auto valid = batch.at("@valid").as<uint8_t>();
  const auto id = batch.at("id").as<int64_t>(), number = batch.at("number").as<int64_t>();
  const auto tags = batch.at("tags").as<int32_t>();
  const size_t each = tags.size() / id.size();
  for (size_t i = 0; i < id.size(); i++) {
    if (!valid[i]) continue;
    ids.push_back(id[i]);
    bool right = number[i] == id[i] % known_words;
    for (size_t tag = 0; tag < each; tag++)
      right = right && tags[each * i + tag] == tag_of(id[i], static_cast<int64_t>(tag));
    if (!right) throw std::logic_error(fmt::format("the numbers of record {} are wrong", id[i]));
  }
}

/// Returns the error that ends a feed.
Error error_of_feed(Feeder& feeder) {
  try {
    while (feeder.next()) {
    }
  } catch (const Error& error) {
    return error;
  }
  throw std::logic_error("the feed ends without an error");
}

}  // namespace

TEST_CASE("each name becomes its number, one in a record or several, in every order") {
  for (const int64_t tags : {2, 4, 300}) {  // the writer is given 256 values at a time
    const Words words(200, tags);
    for (const std::string order :
         {"", "shuffle { block_size: '16KiB' buffer_size: 100 } ", "shuffle { mode: GLOBAL } ", "window { size: 2 } "})
      for (const int count : {1, 2}) {
        INFO(tags << " tags, " << order << count << " replicas");
        Feeder feeder(words.pipeline(number_output + tags_output + order + batch_of(14, "PAD")), replicas(count));
        std::vector<int64_t> ids;
        for (bool ended = false; !ended;)
          for (int replica = 0; replica < count; replica++) {
            const Batch batch = feeder.next(replica);
            if ((ended = !batch)) continue;
            Shape shape{batch.rows()};
            if (order.starts_with("window")) shape = {batch.rows(), 2};
            CHECK((batch.at("number").shape == shape && batch.at("number").dtype == DType::int64));
            std::vector<int64_t> axes(shape.begin(), shape.end());
            axes.insert(axes.end(), {2, tags / 2});
            CHECK((batch.at("tags").shape == Shape(axes) && batch.at("tags").dtype == DType::int32));
            check_numbers(batch, ids);
          }
        std::sort(ids.begin(), ids.end());
        CHECK(ids == numbers(200));
        CHECK(feeder.report().last_epoch->verdict == EpochAudit::Verdict::holds);
      }
  }
}

TEST_CASE("a name that is not known is a bad record, with the name in its message") {
  const Words words(60, 4, [](int64_t id) { return id % 20 == 9 ? known_words + id : id % known_words; });
  const std::string why = "words.txt does not have the name '" + word_of(known_words + 9) +
                          "'; add the name to this file, give vocabulary.unknown, or correct the record";
  Feeder strict(words.pipeline(number_output + batch_of(4, "DROP")));
  CHECK(strict.next().at("id").as<int64_t>()[3] == 3);
  CHECK(strict.next().at("id").as<int64_t>()[3] == 7);
  const Error error = error_of_feed(strict);
  CHECK(error.category() == Category::wrong_value);
  CHECK(error.message() == why);
  CHECK((error.place().file == words.file() && error.place().record == 9 && error.place().feature == "word"));
  CHECK(error.place().offset > 0);

  for (const std::string policy : {"SKIP_RECORD", "SKIP_FILE"}) {  // they are found after the file was counted
    INFO(policy);
    Feeder feeder(
        words.pipeline(number_output + tags_output + "errors { on_error: " + policy + " } " + batch_of(10, "DROP")));
    std::vector<int64_t> ids;
    while (const Batch batch = feeder.next()) {
      CHECK(batch.rows() == 10);
      check_numbers(batch, ids);
    }
    CHECK(ids.size() == 57);
    CHECK(std::ranges::none_of(ids, [](int64_t id) { return id % 20 == 9; }));
    const Report report = feeder.report();
    CHECK(report.bad_records == 3);
    REQUIRE(report.errors.size() == 3);
    CHECK(report.errors[0].message() == why);
    CHECK(report.errors[2].place().record == 49);
    CHECK(report.last_epoch->verdict == EpochAudit::Verdict::holds);
  }
  Feeder limited(
      words.pipeline(number_output + "errors { on_error: SKIP_RECORD max_failures: 2 } " + batch_of(10, "DROP")));
  CHECK_THAT(error_of_feed(limited).message(), Catch::Contains("errors.max_failures"));

  const TriedRecords tried = Feeder(words.pipeline(number_output + batch_of(4, "DROP"))).try_records(16);
  CHECK(tried.failed == 1);
  REQUIRE(tried.errors.size() == 1);
  CHECK(tried.errors[0].message() == why);
}

TEST_CASE("of several names the first that is not known is told") {
  const Words words(8, 300);  // each record has all words
  std::string some;
  for (int64_t number = 0; number < known_words; number++)
    if (number != tag_of(5, 2) && number != tag_of(5, 30)) some += word_of(number) + '\n';
  words.dir().write("some.txt", some);
  const std::string output = "output { name: 'tags' feature: 'tags' vocabulary { keys_file: 'some.txt' } } ";
  Feeder strict(words.pipeline(output + "filter: 'id == 5' " + batch_of(1, "DROP")));
  const Error error = error_of_feed(strict);
  CHECK_THAT(error.message(), Catch::StartsWith("value 2: some.txt does not have the name '" + word_of(tag_of(5, 2)) +
                                                "'; add the name to this file"));
  CHECK((error.place().record == 5 && error.place().feature == "tags"));

  Feeder skipping(words.pipeline(output + "errors { on_error: SKIP_RECORD } " + batch_of(4, "DROP")));
  while (const Batch batch = skipping.next()) {
    CHECK(batch.valid_count() == 0);  // no row is good, so all are made of zeros
    CHECK(std::ranges::count(batch.at("tags").as<int64_t>(), 0) == 4 * 300);
  }
  CHECK(skipping.report().bad_records == 8);
}

TEST_CASE("names that are not known fail their own row, wherever its values begin and end among those made at a time") {
  constexpr int64_t tags = 300;
  const struct {
    int64_t row, first;  // in this row all tags from `first` on are not known
    std::vector<int64_t> filled;
  } cases[] = {{2, 280, {0, 1, 1, 3}}, {0, 3, {1, 1, 2, 3}}, {1, 255, {0, 0, 2, 3}}, {3, 299, {0, 1, 2, 2}}};
  for (const auto& c : cases) {
    INFO("row " << c.row << ", from tag " << c.first << " on");
    const Words words(8, tags, {}, [&](int64_t id, int64_t i) {
      return id == c.row && i >= c.first ? known_words + i : tag_of(id, i);
    });
    const std::string text =
        number_output + "output { name: 'tags' feature: 'tags' dtype: INT32 vocabulary { keys_file: 'words.txt' } } ";
    const std::string why = fmt::format("value {}: words.txt does not have the name '{}'; add the name", c.first,
                                        word_of(known_words + c.first));
    Feeder strict(words.pipeline(text + batch_of(4, "DROP")));
    const Error error = error_of_feed(strict);
    CHECK(error.category() == Category::wrong_value);
    CHECK_THAT(error.message(), Catch::StartsWith(why));
    CHECK((error.place().record == c.row && error.place().feature == "tags"));
    const TriedRecords tried = strict.try_records(8);
    REQUIRE(tried.errors.size() == 1);
    CHECK(tried.errors[0].message() == error.message());

    Feeder skipping(words.pipeline(text + "errors { on_error: SKIP_RECORD } " + batch_of(4, "DROP")));
    const Batch batch = skipping.next();
    REQUIRE(batch);
    std::vector<uint8_t> mask(4, 1);
    mask[static_cast<size_t>(c.row)] = 0;
    const auto valid = batch.at("@valid").as<uint8_t>();
    CHECK(std::vector<uint8_t>(valid.begin(), valid.end()) == mask);
    const auto ids = batch.at("id").as<int64_t>();
    CHECK(std::vector<int64_t>(ids.begin(), ids.end()) == c.filled);
    std::vector<int32_t> wanted;
    for (const int64_t id : c.filled)
      for (int64_t i = 0; i < tags; i++) wanted.push_back(static_cast<int32_t>(tag_of(id, i)));
    const auto found = batch.at("tags").as<int32_t>();
    CHECK(std::vector<int32_t>(found.begin(), found.end()) == wanted);
    std::vector<int64_t> others;
    const Batch next = skipping.next();
    REQUIRE(next);
    check_numbers(next, others);
    CHECK(others == numbers(4, 4));
    const Report report = skipping.report();
    CHECK(report.bad_records == 1);
    REQUIRE(report.errors.size() == 1);
    CHECK_THAT(report.errors[0].message(), Catch::StartsWith(why));
    CHECK(report.errors[0].place().record == c.row);
  }
}

TEST_CASE("with `unknown` no name is bad: those that are not known become this number") {
  const Words words(60, 2, [](int64_t id) { return id % 3 == 0 ? known_words + id : id % known_words; });
  for (const auto& [unknown, dtype] :
       std::vector<std::pair<int64_t, std::string>>{{-1, ""},
                                                    {0, "dtype: INT64"},
                                                    {known_words, "dtype: INT32"},
                                                    {std::numeric_limits<int32_t>::min(), "dtype: INT32"},
                                                    {std::numeric_limits<int64_t>::max(), "dtype: INT64"}}) {
    INFO(unknown << dtype);
    Feeder feeder(words.pipeline(fmt::format("output {{ name: 'number' feature: 'word' {} vocabulary {{ keys_file: "
                                             "'words.txt' unknown: {} }} }} ",
                                             dtype, unknown) +
                                 batch_of(15, "DROP")));
    int64_t seen = 0;
    while (const Batch batch = feeder.next())
      for (int64_t row = 0; row < batch.rows(); row++, seen++) {
        const auto at = static_cast<size_t>(row);
        const TensorView& tensor = batch.at("number");
        const int64_t number = tensor.dtype == DType::int32 ? tensor.as<int32_t>()[at] : tensor.as<int64_t>()[at];
        CHECK(number == (seen % 3 == 0 ? unknown : seen));
      }
    CHECK(seen == 60);
    CHECK(feeder.report().bad_records == 0);
  }
}

TEST_CASE("names are whole lines without their ends, and a default value is looked up as any other") {
  const TempDir dir;
  dir.write("words.txt", "a\nb\r\nc d");
  std::vector<std::string> records;
  for (const std::string word : {"a", "b", "b\r", "", "c d", "c", "none"})
    records.push_back(wire::example(word == "none" ? "" : wire::entry("word", wire::bytes_feature({word}))));
  write_records(dir.file("data"), records);
  Feeder feeder(
      parse_pipeline("source { files: 'data' } feature { name: 'word' dtype: BYTES default_value { bytes_value: "
                     "'b' } } output { name: 'number' feature: 'word' vocabulary { keys_file: 'words.txt' "
                     "unknown: 9 } } " +
                         batch_of(7, "DROP"),
                     dir.path()));
  const Batch batch = feeder.next();
  const auto found = batch.at("number").as<int64_t>();
  CHECK(std::vector<int64_t>(found.begin(), found.end()) == std::vector<int64_t>{0, 1, 9, 9, 2, 9, 1});
}

TEST_CASE("with buckets no name is bad: those that are not known get numbers after the known ones, by their hash") {
  const Words words(
      200, 300, [](int64_t id) { return id % 3 == 0 ? known_words + id : id % known_words; },
      [](int64_t id, int64_t i) { return (id + i) % 4 == 0 ? known_words + id + i : tag_of(id, i); });
  for (const auto& [buckets, dtype] :
       std::vector<std::pair<int64_t, std::string>>{{1, ""}, {7, "dtype: INT32"}, {int64_t{1} << 31, "dtype: INT64"}}) {
    INFO(buckets << dtype);
    const auto numbers_of = [&, buckets = buckets](int64_t number) {
      if (number < known_words) return number;
      return known_words + static_cast<int64_t>(flow::fingerprint(word_of(number)) % static_cast<uint64_t>(buckets));
    };
    const std::string how =
        fmt::format("{} vocabulary {{ keys_file: 'words.txt' unknown_buckets: {} }} }} ", dtype, buckets);
    Feeder feeder(words.pipeline("output { name: 'number' feature: 'word' " + how +
                                 "output { name: 'tags' feature: 'tags' " + how + batch_of(20, "DROP")));
    int64_t seen = 0;
    while (const Batch batch = feeder.next()) {
      const auto at = [](const TensorView& tensor, size_t i) {
        return tensor.dtype == DType::int32 ? int64_t{tensor.as<int32_t>()[i]} : tensor.as<int64_t>()[i];
      };
      for (size_t row = 0; row < static_cast<size_t>(batch.rows()); row++, seen++) {
        CHECK(at(batch.at("number"), row) == numbers_of(seen % 3 == 0 ? known_words + seen : seen % known_words));
        for (int64_t i = 0; i < 300; i++)
          REQUIRE(at(batch.at("tags"), 300 * row + static_cast<size_t>(i)) ==
                  numbers_of((seen + i) % 4 == 0 ? known_words + seen + i : tag_of(seen, i)));
      }
    }
    CHECK(seen == 200);
    CHECK(feeder.report().bad_records == 0);
  }
  const auto refused = [&](int64_t buckets) {
    try {
      Feeder feeder(words.pipeline(fmt::format("output {{ name: 'number' feature: 'word' dtype: INT32 vocabulary {{ "
                                               "keys_file: 'words.txt' unknown_buckets: {} }} }} ",
                                               buckets) +
                                   batch_of(20, "DROP")));
    } catch (const Error& error) {
      CHECK(error.place().file == words.dir().file("words.txt"));
      return error.message();
    }
    return std::string();
  };
  CHECK(refused((int64_t{1} << 31) - known_words).empty());
  CHECK(
      refused((int64_t{1} << 31) - known_words + 1) ==
      "70 names and 2,147,483,579 buckets of vocabulary.unknown_buckets have numbers that do not fit into INT32; lower "
      "vocabulary.unknown_buckets, or write the dtype INT64");
}

TEST_CASE("names that are numbers: INT64 values, one in a record or several, of which unknown ones are told") {
  const TempDir dir;
  constexpr int64_t count = 70;
  const auto key_of = [](int64_t number) {
    return number == 3   ? std::numeric_limits<int64_t>::min()
           : number == 4 ? std::numeric_limits<int64_t>::max()
                         : number * 37 % 1000 - 500;
  };
  std::string names;
  std::vector<float> rows;
  for (int64_t number = 0; number < count; number++) {
    names += std::to_string(key_of(number)) + "\n";
    rows.push_back(static_cast<float>(number) / 4);
  }
  dir.write("keys.txt", names);
  dir.write("t.npy", npy("<f4", "(70,)", in_memory(rows)));
  for (const int64_t each : {1, 2, 300}) {  // the writer is given 256 values at a time
    const auto number_of = [&](int64_t id, int64_t i) { return (id * 7 + i * 3) % count; };
    const auto write = [&](int64_t lost) {
      std::vector<std::string> records;
      for (int64_t id = 0; id < 100; id++) {
        std::vector<int64_t> keys;
        for (int64_t i = 0; i < each; i++) keys.push_back(id == lost ? -7777 : key_of(number_of(id, i)));
        records.push_back(wire::example(wire::entry("id", wire::int64_feature({id})) +
                                        wire::entry("key", wire::int64_feature({keys[0]})) +
                                        wire::entry("keys", wire::int64_feature(keys))));
      }
      write_records(dir.file("data"), records);
    };
    const auto pipeline = [&](const std::string& more) {
      return parse_pipeline(
          fmt::format(
              "source {{ files: 'data' }} feature {{ name: 'id' dtype: INT64 }} feature {{ name: 'key' dtype: "
              "INT64 }} feature {{ name: 'keys' dtype: INT64 shape: {} }} output {{ name: 'id' feature: 'id' }} "
              "output {{ name: 'row' feature: 'key' lookup {{ table: 't.npy' keys_file: 'keys.txt' {} }} }} "
              "output {{ name: 'keys' feature: 'keys' vocabulary {{ keys_file: 'keys.txt' {} }} }} ",
              each, more, more) +
              batch_of(20, "DROP"),
          dir.path());
    };
    for (const int64_t lost : {-1, 45}) {
      INFO(each << " keys, lost: " << lost);
      write(lost);
      Feeder feeder(pipeline("unknown: 5"));
      int64_t seen = 0;
      while (const Batch batch = feeder.next()) {
        const auto id = batch.at("id").as<int64_t>(), keys = batch.at("keys").as<int64_t>();
        const auto row = batch.at("row").as<float>();
        CHECK((batch.at("keys").shape == Shape{20, each}));
        for (size_t r = 0; r < id.size(); r++, seen++) {
          CHECK(row[r] == static_cast<float>(id[r] == lost ? 5 : number_of(id[r], 0)) / 4);
          for (int64_t i = 0; i < each; i++)
            REQUIRE(keys[r * static_cast<size_t>(each) + static_cast<size_t>(i)] ==
                    (id[r] == lost ? 5 : number_of(id[r], i)));
        }
      }
      CHECK(seen == 100);
      CHECK(feeder.report().bad_records == 0);
    }
    Feeder strict(pipeline(""));
    const Error error = error_of_feed(strict);
    CHECK(error.category() == Category::wrong_value);
    CHECK(error.message() ==
          "keys.txt does not have the number -7777; add the number to this file and its row to "
          "t.npy, give lookup.unknown, or correct the record");
    CHECK((error.place().record == 45 && error.place().feature == "key"));
    const TriedRecords tried = strict.try_records(100);
    REQUIRE(tried.errors.size() == 1);
    CHECK(tried.errors[0].message() == error.message());
    Feeder several(pipeline("").with("output.row.lookup.unknown", "0"));
    CHECK(error_of_feed(several).message() ==
          std::string(each == 1 ? "" : "value 0: ") +
              "keys.txt does not have the number -7777; add the number to this file, give vocabulary.unknown, or "
              "correct the record");
  }
}

TEST_CASE("the plan has each file of names once, and what it takes; a file that will not do is named") {
  const Words words(40);
  const Feeder feeder(words.pipeline(number_output + tags_output + batch_of(10, "DROP")));
  const std::string text = feeder.plan_text();
  CHECK_THAT(text, Catch::Contains("table    words.txt: 70 names\n") && Catch::Contains("memory   tables "));
  CHECK(text.find("words.txt") == text.rfind("words.txt"));
  const auto refused = [&](const std::string& more) {
    try {
      const Feeder made(words.pipeline(number_output + more + batch_of(10, "DROP")));
    } catch (const Error& error) {
      CHECK(error.place().file == words.dir().file("words.txt"));
      return error.message();
    }
    return std::string("no error");
  };
  CHECK_THAT(refused("memory { limit: '1KiB' } "), Catch::Contains("the names take "));
  words.dir().write("words.txt", "a\nb\na\n");
  CHECK_THAT(refused(""), Catch::Contains("the name 'a' is on line 1 and on line 3"));
  words.dir().write("words.txt", "");
  CHECK_THAT(refused(""), Catch::Contains("the file has 0 lines; a vocabulary has 1 to "));
  std::filesystem::remove(words.dir().file("words.txt"));
  CHECK_THAT(refused(""), Catch::Contains("vocabulary.keys_file: cannot be opened: "));
}

TEST_CASE("ranks: the same numbers where rows travel, and files of names that differ are refused") {
  const Words words(240, 4, [](int64_t id) { return id == 17 ? known_words : id % known_words; });
  const Pipeline pipeline = words.pipeline(number_output + tags_output +
                                           "errors { on_error: SKIP_RECORD } shuffle { "
                                           "seed: 3 } " +
                                           batch_of(12, "DROP"));
  for (const std::string mode : {"SPLIT", "REPLICATE", "SCATTER"})
    for (const int ranks : {1, 2, 3}) {
      INFO(mode << ", " << ranks << " ranks");
      std::vector<std::vector<int64_t>> ids(static_cast<size_t>(ranks));
      const auto thrown = on_communicators(ranks, [&](int rank, Ends end) {
        Feeder feeder(pipeline.with("distribute.mode", mode), of_rank(std::move(end), 2));
        for (bool ended = false; !ended;)
          for (int replica = 0; replica < 2; replica++) {
            const Batch batch = feeder.next(replica);
            if (!(ended = !batch)) check_numbers(batch, ids[static_cast<size_t>(rank)]);
          }
      });
      CHECK(thrown == nothing_thrown(ranks));
      std::vector<int64_t> all, wanted;
      for (const auto& of_one : ids) all.insert(all.end(), of_one.begin(), of_one.end());
      std::sort(all.begin(), all.end());
      for (const int64_t id : numbers(240))
        if (id != 17) wanted.insert(wanted.end(), mode == "REPLICATE" ? 2 * static_cast<size_t>(ranks) : 1, id);
      CHECK(all == wanted);
    }

  const Words same(240), alike(240), others(240), renamed(240);
  others.dir().write("words.txt", "the only word\n");
  std::filesystem::rename(renamed.dir().file("words.txt"), renamed.dir().file("terms.txt"));
  const auto both = [&](const Pipeline& of_other) {
    return on_ranks(2, [&](int rank, Exchange exchange) {
      Options options = replicas(1);
      options.exchange = std::move(exchange);
      options.rank = rank;
      options.world_size = 2;
      const Feeder feeder(rank == 0 ? same.pipeline(number_output + batch_of(12, "DROP")) : of_other, options);
    });
  };
  CHECK(both(alike.pipeline(number_output + batch_of(12, "DROP"))) == nothing_thrown(2));
  for (const std::string& what : both(others.pipeline(number_output + batch_of(12, "DROP"))))
    CHECK_THAT(what, Catch::Contains("rank 1 differs from rank 0: output 'number': names of words.txt, digest "));
  const std::string terms = "output { name: 'number' feature: 'word' vocabulary { keys_file: 'terms.txt' } } ";
  for (const std::string& what : both(renamed.pipeline(terms + batch_of(12, "DROP"))))
    CHECK_THAT(what, Catch::Contains("rank 1 differs from rank 0: output 'number': names of terms.txt, digest "));
  const std::string known =
      "output { name: 'number' feature: 'word' vocabulary { keys_file: 'words.txt' unknown: 5 } } ";
  for (const std::string& what : both(same.pipeline(known + batch_of(12, "DROP"))))
    CHECK_THAT(what, Catch::Contains("vocabulary.unknown: 5, but not set there"));
}

TEST_CASE("a rank that is sent its rows needs no file of names") {
  const Words words(60), without(60);
  std::filesystem::remove(without.dir().file("words.txt"));
  for (const std::string mode : {"REPLICATE", "SCATTER"}) {
    INFO(mode);
    std::vector<int64_t> ids[2];
    const auto thrown = on_communicators(2, [&](int rank, Ends end) {
      const Pipeline mine = (rank == 0 ? words : without).pipeline(number_output + tags_output + batch_of(12, "DROP"));
      Feeder feeder(mine.with("distribute.mode", mode), of_rank(std::move(end), 1));
      while (const Batch batch = feeder.next()) check_numbers(batch, ids[rank]);
    });
    CHECK(thrown == nothing_thrown(2));
    CHECK(ids[0].size() == (mode == "REPLICATE" ? 60 : 30));
    CHECK(ids[1].size() == ids[0].size());
  }
}

TEST_CASE("a feed goes on with the same numbers, and with a longer file of names") {
  const Words words(200);
  const Pipeline pipeline =
      words.pipeline(number_output + tags_output + "shuffle { mode: GLOBAL } " + batch_of(20, "DROP"));
  Feeder whole(pipeline);
  const Texts all = epoch_of(whole);
  const std::string at = whole.get_state(0, 4);
  std::string longer;
  for (int64_t number = 0; number < known_words + 5; number++) longer += word_of(number) + '\n';
  words.dir().write("words.txt", longer);
  Feeder rest(pipeline);
  rest.set_state(at);
  CHECK(epoch_of(rest)[0] == std::vector<std::string>(all[0].begin() + 4, all[0].end()));
}
