#include <sys/mman.h>
#include <unistd.h>

#include <optional>

#include "base/machine.h"
#include "flowgraph/example_writer.h"
#include "flowgraph/parse/example_reference.h"
#include "flowgraph/parse/packed_varints.h"
#include "flowgraph/parse/random_records.h"
#include "flowgraph/parse/record_parser.h"
#include "support/catch.h"

namespace feedline::test {
namespace {

using flow::Arena;
using flow::BytesRef;
using flow::FeatureKind;
using flow::FeatureSpec;
using flow::RowError;
using flow::ValuesRef;

/// Parses the records in one session. The arena has exactly the size of its bound.
struct Parsed {
  Parsed(std::vector<FeatureSpec> features, const std::vector<std::string>& records)
      : parser(flow::example_parser(std::move(features))) {
    for (const std::string& record : records) {
      views.push_back({reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
      payload += record.size();
    }
    memory.resize(parser->arena_bound(records.size(), payload));
    arena = Arena(memory);
    session = parser->begin({static_cast<uint32_t>(records.size()), payload}, arena);
    session->parse(views, errors);
  }
  const flow::Column& column(size_t i) const { return session->columns()[i]; }

  std::unique_ptr<const flow::RecordParser> parser;
  uint64_t payload = 0;  // bytes of all records
  std::vector<io::RecordView> views;
  std::vector<std::byte> memory;
  Arena arena;
  std::unique_ptr<flow::RecordParser::Session> session;
  std::vector<RowError> errors;
};

std::string text(const BytesRef& ref) { return {reinterpret_cast<const char*>(ref.data), ref.size}; }

std::string chess(Random& random, int64_t score, bool packed = true, bool score_first = false) {
  std::string board(194, '\0');
  for (char& c : board) c = static_cast<char>(random());
  const std::string d = wire::entry("d", wire::bytes_feature({board}));
  const std::string s = wire::entry("s", wire::int64_feature({score}, packed));
  return wire::example(score_first ? s + d : d + s);
}

std::vector<FeatureSpec> chess_features() {
  FeatureSpec d = feature("d", DType::bytes);
  d.length = 194;
  return {d, feature("s", DType::int64)};
}

}  // namespace

TEST_CASE("varints side by side are decoded as one by one") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx512));
  Random random(1);
  for (int round = 0; round < 2000; round++) {
    std::string bytes(10, '\x80');  // the bytes before the first varint belong to none
    std::vector<int64_t> values;
    for (uint64_t n = below(random, 40); n != 0; n--) {
      values.push_back(round % 2 ? any_int(random) : static_cast<int64_t>(below(random, 1'000'000)));
      bytes += wire::varint(static_cast<uint64_t>(values.back()));
    }
    const auto* p = reinterpret_cast<const uint8_t*>(bytes.data()) + 10;
    const auto* end = reinterpret_cast<const uint8_t*>(bytes.data()) + bytes.size();
    std::vector<int64_t> decoded(values.size());
    REQUIRE(flow::wire::decode_varints(p, end, decoded.data(), values.size()) == values.size());
    REQUIRE(decoded == values);
    if (!values.empty()) {
      REQUIRE(flow::wire::decode_varints(p, end, decoded.data(), values.size() - 1) == flow::wire::unfit);
    }
    uint64_t single = 0;
    REQUIRE(flow::wire::read_varint_before(end, static_cast<size_t>(end - p), single) == (values.size() == 1));
    if (values.size() == 1) REQUIRE(static_cast<int64_t>(single) == values[0]);
  }
}

TEST_CASE("a varint longer than 10 bytes or without an end is refused") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx512));
  for (size_t width = 1; width <= 12; width++) {
    for (const bool ended : {true, false}) {
      std::string bytes(20 + width, '\xff');
      if (ended) bytes.back() = '\x01';
      const auto* end = reinterpret_cast<const uint8_t*>(bytes.data()) + bytes.size();
      int64_t value = 0;
      CHECK(flow::wire::decode_varints(end - width, end, &value, 1) == (ended && width <= 10 ? 1 : flow::wire::unfit));
      uint64_t single = 0;
      CHECK(flow::wire::read_varint_before(end, width, single) == (ended && width <= 10));
    }
  }
}

TEST_CASE("the parser answers as protobuf does: random records of every form") {
  Random random(2);
  for (int round = 0; round < 400; round++) {
    const std::vector<FeatureSpec> features = random_features(random);
    Writer writer{random, round % 2 == 0 ? uint64_t{40} : uint64_t{6}};
    std::vector<std::string> records;
    for (int i = 0; i < 20; i++) records.push_back(writer.example());
    INFO("round " << round);
    REQUIRE(compare_with_protobuf(features, records) == "");
  }
}

TEST_CASE("the parser answers as protobuf does: damaged records among sound ones") {
  Random random(3);
  for (int round = 0; round < 400; round++) {
    const std::vector<FeatureSpec> features = random_features(random);
    Writer writer{random, 60};
    const std::string sound = writer.example();
    std::vector<std::string> records;
    for (int i = 0; i < 40; i++) {
      records.push_back(sound);
      records.push_back(sound);
      mutate(random, records.back());
    }
    INFO("round " << round);
    REQUIRE(compare_with_protobuf(features, records) == "");
  }
}

TEST_CASE("groups may be nested as deep as protobuf's limit allows, at every level") {
  const FeatureSpec x = feature("x", DType::int64, FeatureKind::variable);
  const auto nested = [](int depth) {
    std::string open, close;
    for (int i = 0; i < depth; i++) {
      open += wire::tag(9, 3);
      close += wire::tag(9, 4);
    }
    return open + close;
  };
  const std::string list = wire::delimited(1, wire::varint(7));
  for (int depth = 94; depth <= 102; depth++) {
    const std::string group = nested(depth);
    const std::string feature_bytes = wire::delimited(3, list);
    const std::vector<std::string> records = {
        wire::example(wire::entry("x", feature_bytes)) + group,
        wire::example(wire::entry("x", feature_bytes) + group),
        wire::example(wire::delimited(1, wire::delimited(1, "x") + group + wire::delimited(2, feature_bytes))),
        wire::example(wire::entry("x", group + feature_bytes)),
        wire::example(wire::entry("x", wire::delimited(3, group + list))),
    };
    INFO("depth " << depth);
    CHECK(compare_with_protobuf({x}, records) == "");
  }
}

TEST_CASE("records of one layout take the short way, whatever the width of the score") {
  Random random(4);
  std::vector<std::string> records;
  for (int i = 0; i < 1000; i++) records.push_back(chess(random, any_int(random)));
  uint64_t hits = 0;
  REQUIRE(compare_with_protobuf(chess_features(), records, &hits) == "");
  CHECK(hits == 999);
}

TEST_CASE("layouts that alternate record by record are both remembered") {
  Random random(5);
  std::vector<std::string> records;
  for (int i = 0; i < 1000; i++) records.push_back(chess(random, any_int(random), i % 2 == 0, i % 2 == 0));
  uint64_t hits = 0;
  REQUIRE(compare_with_protobuf(chess_features(), records, &hits) == "");
  CHECK(hits == 998);
}

TEST_CASE("a layout that changes is learned anew") {
  Random random(6);
  std::vector<std::string> records;
  for (int phase = 0; phase < 8; phase++) {
    const std::string key = "extra " + std::to_string(phase);
    for (int i = 0; i < 50; i++) {
      records.push_back(wire::example(wire::entry("d", wire::bytes_feature({std::string(194, 'd')})) +
                                      wire::entry(key, wire::int64_feature({1, 2})) +
                                      wire::entry("s", wire::int64_feature({any_int(random)}))));
    }
  }
  uint64_t hits = 0;
  REQUIRE(compare_with_protobuf(chess_features(), records, &hits) == "");
  CHECK(hits == 8 * 49);
}

TEST_CASE("lengths that outgrow a byte, or shrink to nothing, are not taken for the learned ones") {
  Random random(7);
  std::vector<std::string> records;
  for (int i = 0; i < 3000; i++) {
    std::vector<int64_t> ints(below(random, 3) == 0 ? 0 : below(random, 30));
    for (int64_t& value : ints) value = any_int(random);
    std::vector<float> floats(below(random, 40));
    records.push_back(wire::example(wire::entry("i", wire::int64_feature(ints, below(random, 4) != 0)) +
                                    wire::entry("f", wire::float_feature(floats, below(random, 4) != 0)) +
                                    wire::entry("b", wire::bytes_feature({std::string(below(random, 150), 'b')}))));
  }
  const std::vector<FeatureSpec> features = {feature("i", DType::int64, FeatureKind::variable),
                                             feature("f", DType::float32, FeatureKind::variable),
                                             feature("b", DType::bytes)};
  REQUIRE(compare_with_protobuf(features, records) == "");
}

TEST_CASE("a repeated key that is learned takes the place of the one before it") {
  const std::string some = wire::entry("x", wire::int64_feature({7})),
                    other = wire::entry("x", wire::int64_feature({8})), none = wire::entry("x", ""),
                    wrong = wire::entry("x", wire::float_feature({1})),
                    long_list = wire::entry("x", wire::int64_feature({1, 2, 3}));
  for (const FeatureSpec& x : {feature("x", DType::int64), with_default(feature("x", DType::int64)),
                               feature("x", DType::int64, FeatureKind::variable)}) {
    for (const std::string& entries :
         {some + other, some + none, none + some, some + wrong, wrong + some, wrong + none, some + long_list,
          long_list + some, long_list + none, some + none + other, some + wrong + none}) {
      CHECK(compare_with_protobuf({x}, std::vector<std::string>(4, wire::example(entries))) == "");
    }
  }
}

TEST_CASE("every byte of a learned header counts") {
  Random random(8);
  const std::string sound = chess(random, 300);
  for (size_t at = 0; at < sound.size(); at++) {
    if (at >= 20 && at < 200) continue;  // the bytes of the board, which are no header
    std::vector<std::string> records(2, sound);
    for (int bit = 0; bit < 8; bit++) {
      records.push_back(sound);
      records.push_back(sound);
      records.back()[at] = static_cast<char>(records.back()[at] ^ (1 << bit));
    }
    INFO("byte " << at);
    REQUIRE(compare_with_protobuf(chess_features(), records) == "");
  }
}

TEST_CASE("records of one size may have different shapes") {
  std::vector<FeatureSpec> features = chess_features();
  features.push_back(with_default(feature("x", DType::int64)));
  Random random(12);
  // The same entries in another order, a value that has the bytes of another record's key, and malformed numbers.
  const std::string d = wire::entry("d", wire::bytes_feature({std::string(194, 'b')}));
  const auto number = [](const char* key, std::string_view varint) {
    return wire::entry(key, wire::delimited(3, wire::delimited(1, varint)));
  };
  const std::string s = number("s", std::string_view("\x80\x01", 2)), x = number("x", std::string_view("\x05\x00", 2)),
                    y = number("y", std::string_view("\x05\x06", 2)),
                    padded = number("s", std::string_view("\x85\x00", 2)),
                    two = number("s", std::string_view("\x05\x06", 2)),
                    open = number("s", std::string_view("\x85\x86", 2)),
                    floats = wire::entry("x", wire::delimited(2, wire::delimited(1, "12")));
  const std::vector<std::string> forms = {d + s + x,      s + d + x,   d + x + s,       d + s + y,    d + s + s,
                                          d + padded + x, d + two + x, d + two + s + x, d + open + x, d + s + floats};
  for (int round = 0; round < 50; round++) {
    std::vector<std::string> records;
    for (int i = 0; i < 60; i++) {
      const std::string& form = forms[below(random, below(random, 4) == 0 ? forms.size() : 2)];
      records.push_back(wire::example(form));
    }
    REQUIRE(compare_with_protobuf(features, records) == "");
  }
}

TEST_CASE("of as many features as a word has bits, and of more, each is looked for, and foreseen") {
  for (const size_t count : {63, 64, 65, 70}) {
    std::vector<FeatureSpec> features;
    std::string all, all_but_last;
    for (size_t i = 0; i < count; i++) {
      const std::string key = "feature " + std::to_string(i);
      features.push_back(with_default(feature(key, DType::int64)));
      all_but_last = all;
      all += wire::entry(key, wire::int64_feature({static_cast<int64_t>(i)}));
    }
    for (const std::string& entries : {all, all_but_last}) {
      uint64_t hits = 0;
      CHECK(compare_with_protobuf(features, std::vector<std::string>(6, wire::example(entries)), &hits) == "");
      CHECK(hits == 5);
    }
  }
}

TEST_CASE("the same key may be asked for by several features") {
  Random random(9);
  std::vector<FeatureSpec> features = {feature("x", DType::int64, FeatureKind::variable),
                                       feature("x", DType::int64, FeatureKind::fixed, {2}),
                                       feature("x", DType::int64, FeatureKind::fixed_sequence, {2})};
  features[1].name = "pair";
  features[2].name = "steps";
  std::vector<std::string> records;
  for (int i = 0; i < 100; i++) {
    records.push_back(wire::example(wire::entry("x", wire::int64_feature({any_int(random), any_int(random)}))));
  }
  REQUIRE(compare_with_protobuf(features, records) == "");
  Parsed parsed(features, {records[0]});
  CHECK(parsed.errors.empty());
  CHECK(parsed.column(0).as<ValuesRef>()[0].count == 2);
}

TEST_CASE("a refused record says what was found and what was wanted") {
  const auto refusal = [](FeatureSpec spec, const std::string& record) {
    Parsed parsed({spec}, {record});
    REQUIRE(parsed.errors.size() == 1);
    return parsed.errors[0];
  };
  const FeatureSpec x = feature("x", DType::int64, FeatureKind::fixed, {3});
  const auto record = [](const std::string& content) { return wire::example(wire::entry("x", content)); };

  RowError error = refusal(x, record(wire::float_feature({1})));
  CHECK(error.category == Category::wrong_dtype);
  CHECK(error.message ==
        "the record holds FLOAT32 values, but 'dtype' is INT64; write dtype: FLOAT32 if all records hold FLOAT32");

  error = refusal(x, record(wire::int64_feature({1, 2})));
  CHECK(error.category == Category::wrong_count);
  CHECK(error.message ==
        "the record holds 2 values, but shape [3] needs 3 values; change 'shape', or write kind: VARIABLE without a "
        "shape if the number of values differs between records");

  FeatureSpec bounded = feature("x", DType::int64, FeatureKind::variable);
  bounded.max_values = 1;
  error = refusal(bounded, record(wire::int64_feature({1, 2})));
  CHECK(error.category == Category::wrong_count);
  CHECK(error.message == "the record holds 2 values, but max_values allows at most 1; raise max_values");

  error = refusal(feature("x", DType::int64, FeatureKind::fixed_sequence, {2}), record(wire::int64_feature({1, 2, 3})));
  CHECK(error.category == Category::wrong_count);
  CHECK(error.message == "the record holds 3 values, but steps of shape [2] need a multiple of 2; change 'shape'");

  error = refusal(x, wire::example(""));
  CHECK(error.category == Category::missing_feature);
  CHECK(error.feature == 0);

  FeatureSpec board = feature("x", DType::bytes);
  board.length = 194;
  error = refusal(board, record(wire::bytes_feature({"short"})));
  CHECK(error.category == Category::wrong_length);
  CHECK(error.message ==
        "the record holds a value of 5 bytes, but 'length' is 194; change 'length', or remove it if records differ in "
        "length");

  board.length_of = "image";  // nobody wrote the length
  error = refusal(board, record(wire::bytes_feature({"short"})));
  CHECK(error.message ==
        "the record holds a value of 5 bytes, but output 'image' decodes 194 bytes; change decode_raw.shape, or remove "
        "decode_raw if records differ in length");

  error = refusal(x, record(wire::int64_feature({1, 2, 3})) + "\n\x7f");
  CHECK(error.category == Category::malformed_proto);
  CHECK(error.feature == -1);
  CHECK(error.message.find("at byte 16 of 18") != std::string::npos);

  error = refusal(x, record(wire::delimited(3, wire::delimited(1, "\xff"))));
  CHECK(error.category == Category::malformed_proto);
  CHECK(error.feature == 0);
}

TEST_CASE("a record that lacks a feature says which it has, the first of a session with the nearest names") {
  const auto refusals = [](const std::string& key, const std::vector<std::string>& records) {
    std::vector<std::string> messages;
    for (const RowError& error : Parsed({feature(key, DType::int64)}, records).errors) {
      CHECK(error.category == Category::missing_feature);
      messages.push_back(error.message.substr(
          0, error.message.find(". If records may lack the feature, give the feature a default_value")));
    }
    return messages;
  };
  using Messages = std::vector<std::string>;
  const auto with = [](const std::vector<std::string>& names) {
    std::string entries;
    for (const std::string& name : names) entries += wire::entry(name, wire::int64_feature({1}));
    return wire::example(entries);
  };
  const std::string lacks = "the record does not have this feature";
  CHECK(refusals("scor", {with({"board", "score", "board"})}) ==
        Messages{lacks + "; did you mean 'score'? Features found: board score"});
  CHECK(refusals("quite other", {with({"board", "score"})}) == Messages{lacks + "; features found: board score"});
  CHECK(refusals("x", {with({})}) == Messages{lacks + "; no features were found"});
  CHECK(refusals("x", {wire::example(wire::entry("x", "") + wire::entry("y", wire::int64_feature({1})))}) ==
        Messages{lacks + "; a feature of this name was found, but it has no list of values"});
  CHECK(refusals("x", {with({"y"}), with({"x"}), with({"z"})}) == Messages{lacks + "; features found: y", lacks});
  CHECK(refusals("x", {with({"\xff\n", "Größe", std::string(90, 'k')})}) ==
        Messages{lacks + "; features found: \\xff\\x0a Größe " + std::string(80, 'k') + "..."});
  std::vector<std::string> many;
  for (int i = 0; i < 30; i++) many.push_back("feature " + std::to_string(i));
  many.push_back("names");
  CHECK(refusals("name", {with(many)}) ==
        Messages{lacks + "; did you mean 'names'? Features found: names feature 0 feature 1 feature 2 feature 3 "
                         "feature 4 feature 5 feature 6 feature 7 feature 8 and 21 more"});
  // A present feature with a wrong value is not reported as missing.
  CHECK(Parsed({feature("y", DType::float32)}, {with({"y"})}).errors[0].category == Category::wrong_dtype);
}

TEST_CASE("a session tells which features some record had") {
  const auto seen = [](const std::vector<FeatureSpec>& features, const std::vector<std::string>& records) {
    std::string text;
    for (const bool one : Parsed(features, records).session->seen()) text += one ? '1' : '0';
    return text;
  };
  const auto with = [](const std::vector<int>& numbers, const std::string& value = wire::int64_feature({1})) {
    std::string entries;
    for (const int number : numbers) entries += wire::entry("f" + std::to_string(number), value);
    return wire::example(entries);
  };
  const auto features = [](size_t count, FeatureKind kind = FeatureKind::fixed) {
    std::vector<FeatureSpec> all;
    for (size_t i = 0; i < count; i++) {
      all.push_back(feature("f" + std::to_string(i), DType::int64, kind));
      if (kind == FeatureKind::fixed) all.back() = with_default(all.back());
    }
    return all;
  };
  for (const FeatureKind kind : {FeatureKind::fixed, FeatureKind::variable}) {
    CHECK(seen(features(4, kind), {}) == "0000");
    CHECK(seen(features(4, kind), {with({0}), with({0, 2}), with({})}) == "1010");
    CHECK(seen(features(4, kind), {with({0}), with({3, 2, 1, 0})}) == "1111");
    CHECK(seen(features(4, kind), std::vector<std::string>(20, with({0, 1, 2, 3}))) == "1111");
    CHECK(seen(features(4, kind), std::vector<std::string>(20, with({1, 3}))) == "0101");
    // An empty feature, and one of a wrong type.
    CHECK(seen(features(4, kind), {with({1}, ""), with({2}, wire::float_feature({1}))}) == "0010");
    CHECK(seen(features(4, kind), {"\x7f", with({1})}) == "0100");
    std::string wanted(70, '0');
    wanted[3] = wanted[66] = '1';
    CHECK(seen(features(70, kind), {with({3}), with({66}), with({3})}) == wanted);
  }
}

TEST_CASE("errors name their rows, and rows around them are good") {
  Random random(10);
  std::vector<std::string> records;
  for (int i = 0; i < 10; i++) records.push_back(chess(random, i));
  records[3].resize(100);
  records[7] = chess(random, 7).replace(20, 1, "");
  Parsed parsed(chess_features(), records);
  REQUIRE(parsed.errors.size() == 2);
  CHECK(parsed.errors[0].row == 3);
  CHECK(parsed.errors[1].row == 7);
  for (int i : {0, 1, 2, 4, 5, 6, 8, 9}) CHECK(parsed.column(1).as<int64_t>()[i] == i);
  CHECK(text(parsed.column(0).as<BytesRef>()[9]) == records[9].substr(18, 194));
}

TEST_CASE("blocks of records go on where the last one stopped") {
  Random random(11);
  std::vector<std::string> records;
  for (int i = 0; i < 30; i++) records.push_back(chess(random, i * 1000));
  Parsed whole(chess_features(), records);
  std::vector<std::byte> memory(whole.memory.size());
  Arena arena(memory);
  const auto session = whole.parser->begin({30, whole.payload}, arena);
  std::vector<RowError> errors;
  for (size_t i = 0; i < 30; i += 10) session->parse(std::span(whole.views).subspan(i, 10), errors);
  REQUIRE(errors.empty());
  CHECK(session->layout_hits() == 29);
  for (int i = 0; i < 30; i++) CHECK(session->columns()[1].as<int64_t>()[i] == i * 1000);
}

TEST_CASE("the arena's bound holds for the worst that records can hold") {
  // compare_with_protobuf gives the parser exactly the memory of its bound.
  const std::vector<FeatureSpec> features = {
      feature("i", DType::int64, FeatureKind::variable), feature("f", DType::float32, FeatureKind::variable),
      feature("b", DType::bytes, FeatureKind::ragged), feature("i", DType::int64, FeatureKind::fixed_sequence)};
  const std::string ints = wire::entry("i", wire::int64_feature(std::vector<int64_t>(1000)));
  const std::string floats = wire::entry("f", wire::float_feature({1}));
  const std::string bytes = wire::entry("b", wire::bytes_feature(std::vector<std::string>(1000)));
  std::string repeated;
  for (int i = 0; i < 200; i++) repeated += floats + wire::entry("i", wire::int64_feature({1})) + wire::entry("b", "");
  for (const std::string& entries :
       {ints, floats, bytes, ints + floats + bytes, ints + ints + ints, floats + ints + floats + ints, repeated,
        bytes + bytes, wire::entry("i", wire::int64_feature(std::vector<int64_t>(500), false))}) {
    CHECK(compare_with_protobuf(features, std::vector<std::string>(20, wire::example(entries))) == "");
    for (const int64_t most : {1, 2, 999, 3000}) {
      std::vector<FeatureSpec> bounded = features;
      for (FeatureSpec& spec : bounded) spec.max_values = most;
      INFO("max_values " << most);
      CHECK(compare_with_protobuf(bounded, std::vector<std::string>(20, wire::example(entries))) == "");
    }
  }

  const auto fixed_only = flow::example_parser(chess_features());
  CHECK(fixed_only->arena_bound(1000, 1 << 20) < 1000 * 24 + 100);
  const auto one_list = flow::example_parser({feature("i", DType::int64, FeatureKind::variable)});
  CHECK(one_list->arena_bound(1, 1000) < 8 * 1000 + 100);
  const auto float_list = flow::example_parser({feature("f", DType::float32, FeatureKind::variable)});
  CHECK(float_list->arena_bound(1, 1000) < 1000 + 100);
  // max_values bounds it, if that is less and each list has it.
  FeatureSpec frames = feature("b", DType::bytes, FeatureKind::ragged);
  frames.max_values = 30;
  CHECK(flow::example_parser({frames})->arena_bound(8, 8 * 3'000'000) < 8 * 30 * 16 + 200);
  CHECK(flow::example_parser({frames})->arena_bound(1000, 1000) < 8 * 1000 + 1000 * 16 + 100);
  CHECK(flow::example_parser({frames, feature("i", DType::int64, FeatureKind::variable)})->arena_bound(1, 1000) >
        8 * 1000);
  // A chunk may be read with more bytes than those of its rows, for which the arena was planned.
  const auto parser = flow::example_parser({frames});
  const std::string record = wire::example(wire::entry("b", wire::bytes_feature({"one", "two"})));
  const std::vector<io::RecordView> views(
      20, {reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
  std::vector<std::byte> memory(parser->arena_bound(20, 20 * record.size()));
  REQUIRE(memory.size() < size_t{20} * 30 * 16);
  Arena arena(memory);
  const auto session = parser->begin({20, 1'000'000}, arena);
  std::vector<RowError> errors;
  session->parse(views, errors);
  CHECK(errors.empty());
  CHECK(session->columns()[0].as<ValuesRef>()[19].count == 2);
}

TEST_CASE("nothing outside a record is read") {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* mapped = mmap(nullptr, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  std::byte* middle = static_cast<std::byte*>(mapped) + page;
  REQUIRE(mprotect(mapped, page, PROT_NONE) == 0);
  REQUIRE(mprotect(middle + page, page, PROT_NONE) == 0);

  Random random(12);
  for (int round = 0; round < 2000; round++) {
    std::vector<FeatureSpec> features = round % 2 == 0 ? chess_features() : random_features(random);
    std::string record =
        round % 2 == 0 ? chess(random, any_int(random), round % 4 == 0, round % 8 < 4) : Writer{random, 40}.example();
    if (record.size() > page) continue;
    std::string cut = record;
    cut.resize(below(random, cut.size()));
    const auto parser = flow::example_parser(features);
    std::vector<std::byte> memory(parser->arena_bound(4, 4 * record.size()));
    Arena arena(memory);
    const auto session = parser->begin({4, 4 * record.size()}, arena);
    std::vector<RowError> errors;
    for (const std::string* what : {&record, &cut}) {
      for (std::byte* place : {middle + page - what->size(), middle}) {
        std::memcpy(place, what->data(), what->size());
        const io::RecordView view{place, static_cast<uint32_t>(what->size()), 0};
        session->parse({&view, 1}, errors);
      }
    }
  }
  munmap(mapped, 3 * page);
}

}  // namespace feedline::test
