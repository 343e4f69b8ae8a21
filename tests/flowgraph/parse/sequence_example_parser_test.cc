#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "base/machine.h"
#include "flowgraph/parse/example_reference.h"
#include "flowgraph/parse/random_records.h"
#include "flowgraph/parse/record_parser.h"
#include "support/catch.h"

namespace feedline::test {
namespace {

using flow::Arena;
using flow::RecordType;
using flow::RowError;
using flow::StepsRef;
using flow::ValuesRef;
using flow::Where;

std::string compare(const std::vector<FeatureSpec>& features, const std::vector<std::string>& records,
                    uint64_t* hits = nullptr) {
  return compare_with_protobuf(features, records, hits, RecordType::sequence_example);
}

FeatureSpec context(FeatureSpec spec) {
  spec.where = Where::context;
  return spec;
}

FeatureSpec list(const std::string& key, DType dtype, FeatureKind kind, Shape shape = {}) {
  FeatureSpec spec = feature(key, dtype, kind, shape);
  spec.where = Where::feature_list;
  return spec;
}

/// Encodes an entry of the feature lists. `steps` are encoded Features.
std::string list_entry(const std::string& key, const std::vector<std::string>& steps) {
  std::string list;
  for (const std::string& step : steps) list += wire::delimited(1, step);
  return wire::entry(key, list);
}

std::string record(const std::string& context_entries, const std::string& list_entries) {
  return wire::delimited(1, context_entries) + wire::delimited(2, list_entries);
}

/// Parses the records in one session. The arena has exactly the size of its bound.
struct Parsed {
  Parsed(std::vector<FeatureSpec> features, const std::vector<std::string>& records)
      : parser(flow::sequence_example_parser(std::move(features))) {
    uint64_t payload = 0;
    for (const std::string& record : records) {
      views.push_back({reinterpret_cast<const std::byte*>(record.data()), static_cast<uint32_t>(record.size()), 0});
      payload += record.size();
    }
    memory.resize(parser->arena_bound(records.size(), payload));
    arena = Arena(memory);
    session = parser->begin({static_cast<uint32_t>(records.size()), payload}, arena);
    session->parse(views, errors);
  }
  std::vector<int64_t> ints(size_t feature, size_t row) const {
    const auto& ref = session->columns()[feature].as<ValuesRef>()[row];
    const auto* values = static_cast<const int64_t*>(ref.values);
    return {values, values + ref.count};
  }

  std::unique_ptr<const flow::RecordParser> parser;
  std::vector<io::RecordView> views;
  std::vector<std::byte> memory;
  Arena arena;
  std::unique_ptr<flow::RecordParser::Session> session;
  std::vector<RowError> errors;
};

}  // namespace

TEST_CASE("sequence records of every form are parsed as protobuf parses them") {
  Random random(12);
  for (int round = 0; round < 400; round++) {
    const std::vector<FeatureSpec> features = random_sequence_features(random);
    Writer writer{random, round % 2 == 0 ? uint64_t{60} : uint64_t{8}};
    std::vector<std::string> records;
    for (int i = 0; i < 20; i++) records.push_back(writer.sequence_example());
    INFO("round " << round);
    REQUIRE(compare(features, records) == "");
  }
}

TEST_CASE("damaged sequence records among sound ones are judged as protobuf judges them") {
  Random random(13);
  for (int round = 0; round < 400; round++) {
    const std::vector<FeatureSpec> features = random_sequence_features(random);
    Writer writer{random, 100};
    const std::string sound = writer.sequence_example();
    std::vector<std::string> records;
    for (int i = 0; i < 40; i++) {
      records.push_back(sound);
      records.push_back(sound);
      mutate(random, records.back());
    }
    INFO("round " << round);
    REQUIRE(compare(features, records) == "");
  }
}

TEST_CASE("groups in feature lists may be nested as deep as protobuf's limit allows") {
  const FeatureSpec x = list("x", DType::int64, FeatureKind::ragged);
  const std::string values = wire::delimited(1, wire::varint(7));
  for (int depth = 94; depth <= 102; depth++) {
    std::string group, ends;
    for (int i = 0; i < depth; i++) {
      group += wire::tag(9, 3);
      ends += wire::tag(9, 4);
    }
    group += ends;
    const std::string step = wire::delimited(3, values);
    const std::vector<std::string> records = {
        record("", list_entry("x", {step})) + group,
        record("", list_entry("x", {step}) + group),
        record("", wire::entry("x", group + wire::delimited(1, step))),
        record("", list_entry("x", {group + step})),
        record("", list_entry("x", {wire::delimited(3, group + values)})),
    };
    INFO("depth " << depth);
    CHECK(compare({x}, records) == "");
  }
}

TEST_CASE("steps of every size, also at the borders of a length's width") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx512));
  Random random(14);
  for (const uint64_t size : {0,   1,   2,   29,  30,  31,  32,  33,  61,  62,   63,   119,  120, 121,
                              122, 123, 124, 125, 126, 127, 128, 129, 200, 4095, 4096, 4097, 5000}) {
    std::vector<std::string> strings, floats, numbers;
    for (int i = 0; i < 5; i++) {
      strings.push_back(wire::bytes_feature({std::string(size, static_cast<char>('a' + i))}));
      floats.push_back(wire::float_feature(std::vector<float>(size, static_cast<float>(i))));
      std::vector<int64_t> ints(size);
      for (int64_t& value : ints) value = i == 0 ? 1 : any_int(random);
      numbers.push_back(wire::int64_feature(ints));
    }
    const std::string one =
        record("", list_entry("strings", strings) + list_entry("floats", floats) + list_entry("numbers", numbers));
    const auto steps = static_cast<int64_t>(std::max<uint64_t>(size, 1));
    INFO("steps of " << size << " values");
    for (const FeatureKind kind : {FeatureKind::fixed_sequence, FeatureKind::fixed, FeatureKind::ragged}) {
      const Shape shape = kind == FeatureKind::fixed            ? Shape{5, steps}
                          : kind == FeatureKind::fixed_sequence ? Shape{steps}
                                                                : Shape();
      FeatureSpec text = list("strings", DType::bytes, kind, kind == FeatureKind::fixed ? Shape{5} : Shape());
      if (size % 2 == 0) text.length = static_cast<int64_t>(size);
      CHECK(compare({text, list("floats", DType::float32, kind, shape), list("numbers", DType::int64, kind, shape)},
                    {one, one, one}) == "");
    }
  }
}

TEST_CASE("values of a step have any width") {
  Random random(15);
  std::vector<std::string> records;
  for (int i = 0; i < 50; i++) {
    std::vector<std::string> steps;
    for (uint64_t n = below(random, 30); n != 0; n--)
      steps.push_back(wire::int64_feature({any_int(random)}, below(random, 4) != 0));
    records.push_back(record("", list_entry("numbers", steps)));
  }
  for (const FeatureKind kind : {FeatureKind::fixed_sequence, FeatureKind::ragged})
    CHECK(compare({list("numbers", DType::int64, kind)}, records) == "");
}

TEST_CASE("one key may lie in the context and in the feature lists") {
  const std::string both = record(wire::entry("x", wire::int64_feature({5})),
                                  list_entry("x", {wire::int64_feature({6}), wire::int64_feature({7})}));
  const Parsed parsed({context(feature("x", DType::int64)), list("x", DType::int64, FeatureKind::fixed_sequence)},
                      {both, both});
  REQUIRE(parsed.errors.empty());
  CHECK(parsed.session->columns()[0].as<int64_t>()[1] == 5);
  CHECK(parsed.ints(1, 1) == std::vector<int64_t>{6, 7});
  CHECK(parsed.session->seen() == std::vector<bool>{true, true});
}

TEST_CASE("several features may read the same feature list") {
  Random random(16);
  std::vector<std::string> records;
  for (int i = 0; i < 20; i++) {
    std::vector<std::string> steps;
    for (int n = 0; n < i % 4; n++) steps.push_back(wire::int64_feature({any_int(random), any_int(random)}));
    records.push_back(record("", list_entry("pairs", steps)));
  }
  CHECK(compare({list("pairs", DType::int64, FeatureKind::fixed_sequence, {2}),
                 list("pairs", DType::int64, FeatureKind::ragged), list("pairs", DType::float32, FeatureKind::ragged)},
                records) == "");
}

TEST_CASE("records whose lists differ only in their lengths are foreseen") {
  std::vector<std::string> records;
  for (int i = 0; i < 100; i++) {
    const std::vector<std::string> frames(static_cast<size_t>(2 + i % 20), wire::bytes_feature({std::string(90, 'f')}));
    const std::vector<std::string> tokens(static_cast<size_t>(1 + i % 30), wire::int64_feature({i, i + 1}));
    records.push_back(record(wire::entry("label", wire::int64_feature({i})),
                             list_entry("frames", frames) + list_entry("tokens", tokens)));
  }
  uint64_t hits = 0;
  CHECK(compare({context(feature("label", DType::int64)), list("frames", DType::bytes, FeatureKind::fixed_sequence),
                 list("tokens", DType::int64, FeatureKind::ragged)},
                records, &hits) == "");
  CHECK(hits >= 80);
}

TEST_CASE("a refused sequence record says what was found and what was wanted") {
  const std::string label = wire::entry("label", wire::int64_feature({1}));
  const auto ints = [](std::vector<int64_t> values) { return wire::int64_feature(values); };
  const auto refusal = [&](FeatureSpec spec, const std::string& bytes) {
    const Parsed parsed({std::move(spec)}, {bytes});
    REQUIRE(parsed.errors.size() == 1);
    return std::string(name(parsed.errors[0].category)) + ": " + parsed.errors[0].message;
  };
  const FeatureSpec steps = list("t", DType::int64, FeatureKind::fixed_sequence);
  CHECK(refusal(steps, record(label, list_entry("t", {ints({1}), wire::float_feature({2})}))) ==
        "wrong_dtype: step 1 of the record holds FLOAT32 values, but 'dtype' is INT64; write dtype: FLOAT32 if all "
        "records hold FLOAT32");
  CHECK(refusal(steps, record(label, list_entry("t", {ints({1}), ints({2}), ints({3, 4})}))) ==
        "wrong_count: step 2 of the record holds 2 values, but shape [] needs 1 in each step; change 'shape', or write "
        "kind: RAGGED without a shape if the number of values differs between steps");
  FeatureSpec most = list("t", DType::int64, FeatureKind::ragged);
  most.max_values = 2;
  CHECK(refusal(most, record(label, list_entry("t", {ints({}), ints({1}), ints({})}))) ==
        "wrong_count: the record has 3 steps with 1 values in all, but max_values is 2, and neither number may exceed "
        "it; raise max_values");
  CHECK(refusal(list("t", DType::int64, FeatureKind::fixed, {2}), record(label, list_entry("t", {ints({1})}))) ==
        "wrong_count: the record has 1 steps, but shape [2] needs 2 steps; change 'shape', or write kind: "
        "FIXED_SEQUENCE with the shape of one step if the number of steps differs between records");
  FeatureSpec text = list("t", DType::bytes, FeatureKind::ragged);
  text.length = 3;
  CHECK(refusal(text, record(label, list_entry("t", {wire::bytes_feature({"abc", "ab"})}))) ==
        "wrong_length: step 0 of the record holds a value of 2 bytes, but 'length' is 3; change 'length', or remove it "
        "if records differ in length");
  FeatureSpec required = list("label", DType::int64, FeatureKind::ragged);
  required.required = true;
  CHECK(refusal(required, record(label, list_entry("t", {}))) ==
        "missing_feature: the record does not have this feature; 'context/label' was found instead. Features found: "
        "context/label feature_lists/t. If records may lack the feature, remove 'required'");
  FeatureSpec prefixed = list("feature_lists/t", DType::int64, FeatureKind::ragged);
  prefixed.required = true;
  CHECK(refusal(prefixed, record(label, list_entry("u", {})))
            .find("feature; features found: context/label feature_lists/u") != std::string::npos);
  FeatureSpec meant = context(feature("context/label", DType::int64));
  for (const char* key : {"context/label", "label2"}) {
    meant.key = key;
    const std::string which = meant.key == meant.name ? "" : ", whose key is 'label2'";
    CHECK(refusal(meant, record(label, "")) ==
          "missing_feature: the record does not have this feature" + which +
              "; did you mean 'label'? Features found: context/label. If records may lack the feature, give the "
              "feature a default_value, or write kind: VARIABLE");
  }
  CHECK(refusal(steps, "no record")
            .starts_with("malformed_proto: the record is not a tf.train.SequenceExample: at byte "
                         "0 of 9"));
}

TEST_CASE("after a wrong step the rest of the list is still checked, and the next record is good") {
  const std::string wrong = list_entry("t", {wire::int64_feature({1}), wire::float_feature({1}),
                                             wire::int64_feature({1, 2, 3}), wire::int64_feature({4})});
  const std::string broken =
      list_entry("t", {wire::float_feature({1}), wire::delimited(3, wire::delimited(1, std::string(11, '\xff')))});
  const std::string good = list_entry("t", {wire::int64_feature({8}), wire::int64_feature({9})});
  const std::vector<std::string> records = {record("", good), record("", wrong), record("", good), record("", broken),
                                            record("", good)};
  for (const FeatureKind kind : {FeatureKind::fixed_sequence, FeatureKind::ragged, FeatureKind::fixed})
    CHECK(compare({list("t", DType::int64, kind, kind == FeatureKind::fixed ? Shape{2} : Shape())}, records) == "");
  const Parsed parsed({list("t", DType::int64, FeatureKind::fixed_sequence)}, records);
  REQUIRE(parsed.errors.size() == 2);
  CHECK(parsed.errors[0].category == Category::wrong_dtype);
  CHECK(parsed.errors[1].category == Category::malformed_proto);
  CHECK(parsed.ints(0, 4) == std::vector<int64_t>{8, 9});
}

TEST_CASE("steps beyond a fixed list are counted, and stored nowhere") {
  const auto step_of = [](DType dtype, size_t values, bool usual) {
    const std::string step = dtype == DType::bytes     ? wire::bytes_feature(std::vector<std::string>(values, "far"))
                             : dtype == DType::float32 ? wire::float_feature(std::vector<float>(values, 7777))
                                                       : wire::int64_feature(std::vector<int64_t>(values, 7777));
    return usual ? step : step + wire::tag(9, 0) + wire::varint(1);  // an unknown field
  };
  for (const DType dtype : {DType::bytes, DType::float32, DType::int64})
    for (const size_t values : {1, 3})
      for (const int64_t room : {1, 2, 5, 13})
        for (const bool usual : {true, false}) {
          INFO(name(dtype) << ", steps of " << values << ", room for " << room << (usual ? "" : ", unusual"));
          const auto steps = [&](size_t count) {
            return list_entry("x", std::vector<std::string>(count, step_of(dtype, values, usual)));
          };
          const auto fits = static_cast<size_t>(room);
          std::vector<std::string> records;
          for (size_t more = 0; more < 12; more++)
            for (const std::string& lists : {steps(fits), steps(fits + more), steps(fits + 8 * more),
                                             steps(fits + more) + steps(fits), wire::entry("x", "") + steps(more)})
              records.push_back(record(wire::entry("id", wire::int64_feature({static_cast<int64_t>(records.size())})),
                                       lists + list_entry("y", {wire::int64_feature({5}), wire::int64_feature({6})})));
          // A FeatureList whose steps lie in two values of one entry, which protobuf merges.
          const std::string whole(std::vector<std::string>(1, step_of(dtype, values, usual)).front());
          std::string half;
          for (size_t i = 0; i < fits + 1; i++) half += wire::delimited(1, whole);
          records.push_back(record(
              wire::entry("id", wire::int64_feature({1})),
              wire::delimited(1, wire::delimited(1, "x") + wire::delimited(2, half) + wire::delimited(2, half))));
          const FeatureSpec x = list("x", dtype, FeatureKind::fixed, {room, static_cast<int64_t>(values)});
          const FeatureSpec id = context(feature("id", DType::int64));
          const FeatureSpec y = list("y", DType::int64, FeatureKind::fixed, {2});
          for (const std::vector<FeatureSpec>& features : {std::vector{x, id, y}, {id, y, x}, {x, x, id}})
            CHECK(compare(features, records) == "");
        }
}

TEST_CASE("single floats are read in any number, up to the first byte that differs") {
  const auto list_of = [](size_t steps) {
    std::string list;
    for (size_t i = 0; i < steps; i++) list += wire::delimited(1, wire::float_feature({static_cast<float>(i) + 0.5f}));
    return list;
  };
  const auto record_of = [](const std::string& x) {
    return record(wire::entry("id", wire::int64_feature({7})), wire::entry("x", x));
  };
  const FeatureSpec id = context(feature("id", DType::int64));
  const auto compare_all = [&](FeatureSpec x, const std::vector<std::string>& records) {
    CHECK(compare({x, id}, records) == "");
    CHECK(compare({id, x}, records) == "");
  };
  FeatureSpec bounded = list("x", DType::float32, FeatureKind::fixed_sequence);
  std::vector<std::string> numbers, others;
  for (size_t steps = 0; steps < 40; steps++) numbers.push_back(record_of(list_of(steps)));
  const std::string twenty = list_of(20);
  for (size_t at = 0; at < twenty.size(); at++)
    for (const int flipped : {0x01, 0x04, 0x80, 0xff}) {
      others.push_back(record_of(twenty));
      std::string other = twenty;
      other[at] = static_cast<char>(other[at] ^ flipped);
      others.push_back(record_of(other));
    }
  compare_all(bounded, numbers);
  compare_all(bounded, others);
  for (const int64_t most : {1, 5, 6, 7, 12, 13, 20}) {
    INFO("at most " << most);
    bounded.max_values = most;
    compare_all(bounded, numbers);
    const FeatureSpec fixed = list("x", DType::float32, FeatureKind::fixed, {most});
    compare_all(fixed, numbers);
    if (most >= 12) compare_all(fixed, others);
  }
}

TEST_CASE("the arena's bound holds for steps without values, and for values of the fewest bytes") {
  for (const DType dtype : {DType::bytes, DType::float32, DType::int64})
    for (const size_t values : {0, 1, 50}) {
      const std::string step = dtype == DType::bytes     ? wire::bytes_feature(std::vector<std::string>(values))
                               : dtype == DType::float32 ? wire::float_feature(std::vector<float>(values))
                                                         : wire::int64_feature(std::vector<int64_t>(values));
      const std::string lists = list_entry("t", std::vector<std::string>(50, values == 0 ? "" : step));
      CHECK(compare({list("t", dtype, FeatureKind::ragged)},
                    std::vector<std::string>(10, record("", lists + lists + list_entry("t", {})))) == "");
    }
}

/// Memory between two pages that cannot be read.
class Guarded {
 public:
  Guarded() {
    REQUIRE(pages_ != MAP_FAILED);
    mprotect(pages_, page_, PROT_NONE);
    mprotect(pages_ + 2 * page_, page_, PROT_NONE);
  }
  ~Guarded() { munmap(pages_, 3 * page_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  /// Parses a record, three times, that begins or ends where the memory does. Returns whether it was refused.
  bool refuses(const FeatureSpec& feature, const std::string& one, bool at_end) {
    char* const at = at_end ? pages_ + 2 * page_ - one.size() : pages_ + page_;
    std::memcpy(at, one.data(), one.size());
    const auto parser = flow::sequence_example_parser({feature});
    const std::vector<io::RecordView> views(
        3, {reinterpret_cast<const std::byte*>(at), static_cast<uint32_t>(one.size()), 0});
    std::vector<std::byte> memory(parser->arena_bound(3, 3 * one.size()));
    Arena arena(memory);
    const auto session = parser->begin({3, 3 * one.size()}, arena);
    std::vector<RowError> errors;
    session->parse(views, errors);
    CHECK((errors.empty() || errors.size() == 3));
    return !errors.empty();
  }

 private:
  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char* const pages_ =
      static_cast<char*>(mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
};

TEST_CASE("nothing outside a sequence record is read, wherever a list in it is cut") {
  Guarded guarded;
  Random random(16);
  struct Case {
    DType dtype;
    int64_t values;  // of a step; 0: any
    std::vector<std::string> steps;
  };
  std::vector<Case> cases;
  for (const int64_t values : {1, 2, 3, 0}) {
    cases.push_back({DType::float32, values, {}});
    cases.push_back({DType::int64, values, {}});
    for (int64_t i = 0; i < (values == 1 ? 14 : 5); i++) {
      const auto count = static_cast<size_t>(values > 0 ? values : (i + 1) % 3);
      std::vector<int64_t> ints(count);
      for (int64_t& value : ints) value = int64_t{1} << 7 * (i % 5);
      cases[cases.size() - 2].steps.push_back(wire::float_feature(std::vector<float>(count, static_cast<float>(i))));
      cases.back().steps.push_back(wire::int64_feature(ints));
    }
  }
  cases.push_back({DType::bytes, 1, {}});
  for (size_t i = 0; i < 5; i++) cases.back().steps.push_back(wire::bytes_feature({std::string(i, 'x')}));
  for (const auto& [dtype, values, steps] : cases) {
    std::string content;
    for (const std::string& step : steps) content += wire::delimited(1, step);
    for (const FeatureKind kind : {FeatureKind::fixed_sequence, FeatureKind::fixed, FeatureKind::ragged}) {
      if (values == 0 && kind != FeatureKind::ragged) continue;
      const bool wide = kind != FeatureKind::ragged && values > 1;
      const auto all = static_cast<int64_t>(steps.size());
      const Shape shape = kind == FeatureKind::fixed ? wide ? Shape{all, values} : Shape{all}
                          : wide ? Shape{values}
                                                     : Shape();
      const FeatureSpec spec = list("t", dtype, kind, shape);
      for (size_t cut = 0; cut <= content.size(); cut++) {
        CAPTURE(name(dtype), values, static_cast<int>(kind), cut);
        const std::string one = record("", wire::entry("t", content.substr(0, cut)));
        REQUIRE(compare({spec}, {one, one, one}) == "");
        const bool refused = guarded.refuses(spec, one, true);
        CHECK(guarded.refuses(spec, one, false) == refused);
        if (cut == content.size()) CHECK_FALSE(refused);
      }
    }
  }
}

}  // namespace feedline::test
