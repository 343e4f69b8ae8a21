// The accumulators of `feedline stats`, and the command where there is no Python. tests/python/test_stats.py compares
// it with numpy.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "base/machine.h"
#include "feedline/records.h"
#include "golden/manifest.h"
#include "support/catch.h"
#include "support/launch.h"
#include "tool.h"
#include "tool/convert/example_writer.h"
#include "tool/stats/drift.h"
#include "tool/stats/moments.h"
#include "tool/stats/sample_size.h"
#include "tool/stats/text_counts.h"
#include "tool/stats/value_cells.h"
#include "tool/stats/value_stats.h"

using namespace feedline;
using namespace feedline::test;
using namespace feedline::tool;
using nlohmann::json;

namespace {

std::string golden(const std::string& name) { return std::string(FEEDLINE_GOLDEN) + "/" + name; }

Moments moments_of(const std::vector<double>& values) {
  Moments moments;
  moments.add(values);
  return moments;
}

template <typename T>
bool same(const std::vector<ValueCells::Cell>& a, const std::vector<ValueCells::Cell>& b, T ValueCells::Cell::*value) {
  return std::ranges::equal(a, b, [&](const ValueCells::Cell& x, const ValueCells::Cell& y) {
    return x.count == y.count && x.one_value == y.one_value && x.*value == y.*value;
  });
}

template <typename T>
ValueCells cells_of(const std::vector<T>& values) {
  ValueCells cells(std::is_same_v<T, int64_t>);
  cells.add(std::span<const T>(values));
  return cells;
}

}  // namespace

TEST_CASE("moments keep their digits far from 0") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  std::vector<double> values;
  for (int i = 0; i < 1000; i++) values.push_back(1e12 + i % 10);
  for (const bool by_row : {false, true}) {
    Moments moments;
    if (by_row)
      REQUIRE(Moments::add_row(std::span<const double>(values), {&moments, 1}));
    else
      moments.add(values);
    CHECK(moments.count == 1000);
    CHECK(moments.least == 1e12);
    CHECK(moments.most == 1e12 + 9);
    CHECK(moments.mean() == 1e12 + 4.5);
    CHECK(std::abs(moments.deviation() - std::sqrt(8.25)) < 1e-9);
  }
  Moments constant;
  for (const double value : std::vector<double>(77, 0.1)) constant.add(value, 3);
  CHECK(constant.mean() == 0.1);
  CHECK(constant.deviation() == 0);
}

TEST_CASE("moments that no double can hold are not known") {
  constexpr double most = std::numeric_limits<double>::max();
  const Moments large = moments_of({1e200, 2e200, 3e200, 4e200});
  CHECK(std::abs(large.mean() / 2.5e200 - 1) < 1e-15);
  CHECK(std::isnan(large.deviation()));
  for (const auto& values : std::vector<std::vector<double>>{{most, most / 2}, {most, -most}, {most, -most, most, 0}}) {
    CHECK(std::isnan(moments_of(values).mean()));
    CHECK(std::isnan(moments_of(values).deviation()));
  }
  CHECK(moments_of({most, most}).deviation() == 0);
  CHECK(std::isnan(moments_of({1e-170, 2e-170}).deviation()));
  CHECK(moments_of({1e-170, 1e-170}).deviation() == 0);
  CHECK(std::abs(moments_of({1e140, 3e140}).deviation() / 1e140 - 1) < 1e-12);
  CHECK(std::abs(moments_of({1e-140, 3e-140}).deviation() / 1e-140 - 1) < 1e-12);
}

TEST_CASE("a part of the samples is rounded up, but not by the rounding of a double") {
  const auto of = [](const char* text, uint64_t all) { return parse_sample_size(text, "--records").of(all); };
  for (uint64_t percent = 1; percent <= 100; percent++)
    for (const uint64_t hundreds : {1, 3, 7, 1'000, 123'456'789}) {
      INFO(percent << " % of " << hundreds << "00");
      CHECK(of((std::to_string(percent) + "%").c_str(), hundreds * 100) == percent * hundreds);
    }
  CHECK(of("7%", 101) == 8);
  CHECK(of("0.1%", 1'000) == 1);
  CHECK(of("1.1%", 1'000) == 11);
  CHECK(of("0.001%", 5) == 1);
  CHECK(of("10", 5) == 5);
}

TEST_CASE("moments are the same in every order") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  std::mt19937_64 random(1);
  std::vector<double> values(10'007);
  for (double& value : values)
    value = std::ldexp(static_cast<double>(random() % 1000) - 500, static_cast<int>(random() % 40));
  const Moments whole = moments_of(values);
  for (int round = 0; round < 20; round++) {
    std::ranges::shuffle(values, random);
    const size_t cut = random() % values.size();
    Moments merged = moments_of({values.begin() + static_cast<std::ptrdiff_t>(cut), values.end()});
    merged.merge(moments_of({values.begin(), values.begin() + static_cast<std::ptrdiff_t>(cut)}));
    CHECK(merged.count == whole.count);
    CHECK(merged.zeros == whole.zeros);
    CHECK(merged.mean() == whole.mean());
    CHECK(merged.deviation() == whole.deviation());
  }
}

TEST_CASE("rows of any length have the moments of their values") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  for (const size_t size : {1, 7, 8, 9, 100, 1023}) {
    std::vector<double> values(size);
    std::iota(values.begin(), values.end(), -3.0);
    Moments row;
    REQUIRE(Moments::add_row(std::span<const double>(values), {&row, 1}));
    const Moments each = moments_of(values);
    CHECK(row.count == size);
    CHECK(row.zeros == each.zeros);
    CHECK(row.least == -3);
    CHECK(row.most == each.most);
    CHECK(row.mean() == each.mean());
    CHECK(std::abs(row.deviation() - each.deviation()) < 1e-12 * each.deviation() + 1e-15);
  }
}

TEMPLATE_TEST_CASE("signs are counted where there is nothing else", "", float, double) {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  std::mt19937_64 random(3);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const size_t size : {1, 7, 8, 9, 15, 16, 17, 63, 128, 129, 144, 1000}) {
    INFO(size << " numbers");
    std::vector<TestType> values(size);
    for (TestType& value : values) value = static_cast<TestType>(static_cast<int>(random() % 3) - 1);
    if (size > 8) values[8] = -TestType{0};
    const auto signs = Signs::of(std::span<const TestType>(values));
    REQUIRE(signs);
    CHECK(static_cast<std::ptrdiff_t>(signs->negative) == std::ranges::count(values, TestType{-1}));
    CHECK(static_cast<std::ptrdiff_t>(signs->zero) == std::ranges::count(values, TestType{0}));
    CHECK(static_cast<std::ptrdiff_t>(signs->positive) == std::ranges::count(values, TestType{1}));
    Moments moments;
    moments.add(*signs);
    const Moments each = moments_of({values.begin(), values.end()});
    CHECK(moments.count == each.count);
    CHECK(moments.zeros == each.zeros);
    CHECK(moments.least == each.least);
    CHECK(moments.most == each.most);
    CHECK(moments.mean() == each.mean());
    CHECK(moments.deviation() == each.deviation());
    for (const double other : {2.0, -2.0, 0.5, 1e-40, 1 + 1e-7, infinity, -infinity, std::nan("")})
      for (size_t at = 0; at < size; at += 1 + size / 16) {
        std::vector<TestType> one_other = values;
        one_other[at] = static_cast<TestType>(other);
        CHECK_FALSE(Signs::of(std::span<const TestType>(one_other)));
      }
  }
}

TEMPLATE_TEST_CASE("parts that take turns have the moments of their values", "", float, double) {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  for (const size_t size : {3, 21, 24, 27, 48, 1536}) {
    std::vector<TestType> values(size);
    std::vector<double> of_parts[3];
    for (size_t i = 0; i < size; i++) {
      values[i] = static_cast<TestType>(i % 3 == 1 ? static_cast<double>(i % 5) : static_cast<double>(i) / 2 - 100);
      of_parts[i % 3].push_back(static_cast<double>(values[i]));
    }
    std::array<Moments, 3> parts;
    REQUIRE(Moments::add_row(std::span<const TestType>(values), parts));
    for (size_t part = 0; part < 3; part++) {
      const Moments each = moments_of(of_parts[part]);
      CHECK(parts[part].count == size / 3);
      CHECK(parts[part].zeros == each.zeros);
      CHECK(parts[part].least == each.least);
      CHECK(parts[part].most == each.most);
      CHECK(parts[part].mean() == each.mean());
      CHECK(std::abs(parts[part].deviation() - each.deviation()) < 1e-12 * each.deviation() + 1e-15);
    }
  }
}

TEST_CASE("few values are counted exactly, of any size") {
  const std::vector<int64_t> extremes = {std::numeric_limits<int64_t>::min(), -1, 0, 1, (int64_t{1} << 53) + 1,
                                         std::numeric_limits<int64_t>::max()};
  ValueCells integers(true);
  for (int i = 0; i < 5; i++) integers.add(std::span<const int64_t>(extremes));
  const auto cells = integers.cells();
  REQUIRE(cells.size() == extremes.size());
  for (size_t i = 0; i < cells.size(); i++) CHECK((cells[i].integer == extremes[i] && cells[i].count == 5));
  CHECK(integers.exact());

  const auto floats = cells_of<double>({-0.0, 0.0, 1e-310, 1e308, -2.5, -2.5}).cells();
  REQUIRE(floats.size() == 4);
  CHECK((floats[0].number == -2.5 && floats[0].count == 2));
  CHECK((floats[1].number == 0 && floats[1].count == 2));

  std::vector<int64_t> most(ValueCells::most);
  std::iota(most.begin(), most.end(), -2000);
  CHECK(cells_of(most).exact());
  most.push_back(5000);
  CHECK(!cells_of(most).exact());
}

TEMPLATE_TEST_CASE("cells of many values follow from the values, not from their order", "", int64_t, double) {
  std::mt19937_64 random(2);
  const auto value_of = [](const ValueCells::Cell& cell) {
    return std::is_same_v<TestType, int64_t> ? static_cast<double>(cell.integer) : cell.number;
  };
  for (const double spread : {1.0, 100.0}) {
    std::vector<TestType> values(50'000);
    for (TestType& value : values) {
      const double bell = std::normal_distribution<double>(0, spread)(random);
      value = static_cast<TestType>(std::is_same_v<TestType, int64_t> ? 1e9 * bell : std::exp(bell));
    }
    const ValueCells whole = cells_of(values);
    const auto cells = whole.cells();
    CHECK(cells.size() <= ValueCells::most);
    CHECK(cells.size() > ValueCells::most / 4);
    uint64_t count = 0;
    for (const auto& cell : cells) count += cell.count;
    CHECK(count == values.size());

    std::vector<TestType> sorted = values;
    std::ranges::sort(sorted);
    const double error = whole.relative_error();
    CHECK(error > 0);
    size_t rank = 0;
    bool near = true;
    for (const auto& cell : cells) {
      for (uint64_t i = 0; i < cell.count; i++, rank++)
        near = near && std::abs(value_of(cell) - static_cast<double>(sorted[rank])) <=
                           error * std::abs(static_cast<double>(sorted[rank])) * (1 + 1e-9);
    }
    CHECK(near);

    for (int round = 0; round < 3; round++) {
      std::ranges::shuffle(values, random);
      std::vector<ValueCells> parts;
      for (size_t begin = 0; begin < values.size(); begin += 7'001) {
        const size_t end = std::min(values.size(), begin + 7'001);
        parts.push_back(cells_of<TestType>(
            {values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end)}));
      }
      MessageWriter message;
      parts.back().put(message);
      const std::string bytes = message.take();
      MessageReader reader(bytes);
      ValueCells merged = ValueCells::get(reader, std::is_same_v<TestType, int64_t>);
      CHECK(reader.at_end());
      for (size_t i = 0; i + 1 < parts.size(); i++) merged.merge(parts[i]);
      CHECK(same(merged.cells(), cells, &ValueCells::Cell::number));
      CHECK(same(merged.cells(), cells, &ValueCells::Cell::integer));
    }
  }
}

TEST_CASE("numbers that are not finite are counted apart") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> values = {1, nan, -inf, 3, inf};
  for (const bool by_row : {false, true}) {
    ValueStats stats(DType::float32);
    if (by_row) {
      stats.add_uncounted(values);
      stats.count(values);
    } else {
      stats.add(std::span<const double>(values));
    }
    stats.settle();
    CHECK(stats.nans() == 1);
    CHECK(stats.infinities() == 2);
    CHECK(stats.moments().count == 2);
    CHECK(stats.moments().mean() == 2);
    CHECK(stats.cells().cells().size() == 2);
    Moments moments;
    CHECK(!Moments::add_row(std::span<const double>(values), {&moments, 1}));
    CHECK(moments.count == 0);
  }
}

TEST_CASE("bytes are counted by value, signed ones too") {
  const std::vector<uint8_t> values = {0, 255, 255, 128, 1};
  ValueStats plain(DType::uint8), with_sign(DType::int8);
  ValueStats::add(values, {&plain, 1});
  ValueStats::add(values, {&with_sign, 1});
  plain.settle();
  with_sign.settle();
  CHECK((plain.least_integer() == 0 && plain.most_integer() == 255));
  CHECK((with_sign.least_integer() == -128 && with_sign.most_integer() == 1));
  CHECK(with_sign.moments().mean() == (0 - 1 - 1 - 128 + 1) / 5.0);
  CHECK(with_sign.cells().cells().size() == 4);
}

TEST_CASE("bytes of parts that take turns, and many bytes, are counted by value") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  std::mt19937_64 random(4);
  std::vector<ValueStats> all(1, ValueStats(DType::uint8)), parts(3, ValueStats(DType::uint8));
  std::map<int64_t, uint64_t> counts, of_parts[3];
  for (const uint64_t kinds : {256, 2, 1}) {  // with two kinds and fewer, they are counted faster
    std::vector<uint8_t> values(10'002);
    for (size_t i = 0; i < values.size(); i++) {
      values[i] = static_cast<uint8_t>(random() % kinds);
      counts[values[i]]++;
      of_parts[i % 3][values[i]]++;
    }
    ValueStats::add(values, all);
    ValueStats::add(values, parts);
  }
  const auto counted = [](ValueStats& stats) {
    stats.settle();
    std::map<int64_t, uint64_t> found;
    for (const auto& cell : stats.cells().cells()) found[cell.integer] = cell.count;
    return found;
  };
  CHECK(counted(all[0]) == counts);
  for (size_t part = 0; part < 3; part++) CHECK(counted(parts[part]) == of_parts[part]);
}

TEST_CASE("strings are counted if they are few and short, whatever their order") {
  TextCounts a, b;
  a.add("cat");
  b.add("cat");
  b.add(std::string("\0x", 2));
  a.merge(b);
  CHECK(a.counts() == decltype(a.counts()){{std::string("\0x", 2), 1}, {"cat", 2}});
  b.add(std::string(65, 'x'));
  CHECK(!b.counted());
  a.merge(b);
  CHECK(!a.counted());
  TextCounts many;
  for (int i = 0; i < 4096; i++) many.add(std::to_string(i));
  CHECK(many.counted());
  many.add("one more");
  CHECK(!many.counted());
  CHECK(many.counts().empty());
}

namespace {

/// Returns what rank 0 of two prints.
std::string stats_of_two_ranks(const std::string& pipeline) {
  const std::string meet = "localhost:" + std::to_string(free_port());
  std::deque<Tool> tools;
  for (const char* rank : {"0", "1"})
    tools.emplace_back(
        std::vector<std::string>{"stats", pipeline, "--json", "--rank", rank, "--world-size", "2", "--meet", meet});
  const ToolResult first = tools[0].wait(), second = tools[1].wait();
  INFO(first.err << second.err);
  CHECK(first.code == 0);
  CHECK(second.code == 0);
  return first.out;
}

}  // namespace

TEST_CASE("stats of the digits, by one process and by ranks") {
  const TempDir dir;
  const std::string pipeline =
      dir.write("p.textproto", "source { files: '" + golden("images/digits_raw.tfrecord") +
                                   "' } feature { name: 'image' dtype: BYTES length: 64 }"
                                   "feature { name: 'label' dtype: INT64 } batch { global_batch_size: 32 }");
  const ToolResult one = run_tool({"stats", pipeline, "--json", "--html", dir.file("page.html")});
  INFO(one.err);
  REQUIRE(one.code == 0);
  CHECK(read_file(dir.file("page.html")).ends_with("</html>\n"));
  const ToolResult unwritten = run_tool({"stats", pipeline, "--json", "--html", dir.path()});
  CHECK(unwritten.code == 1);
  CHECK_THAT(unwritten.err, Catch::Contains(dir.path() + ": "));
  CHECK(unwritten.json().at("outputs") == one.json().at("outputs"));
  const auto stored = load_npz(golden("images/digits_raw.npz"));
  const NpyArray& labels = stored.at("f1.dense");
  std::map<int64_t, uint64_t> counts;
  for (const int64_t label : labels.as<int64_t>()) counts[label]++;
  const json label = one.json().at("outputs").at(1);
  CHECK(label.at("name") == "label");
  REQUIRE(label.at("labels").size() == counts.size());
  for (const json& pair : label.at("labels")) CHECK(counts.at(pair[0]) == pair[1]);

  CHECK(stats_of_two_ranks(pipeline) == one.out);

  if (std::system("command -v mpirun > /dev/null") == 0) {
    const Launched launched =
        mpirun(3, "",
               "sh -c '" FEEDLINE_TOOL " stats " + pipeline +
                   " --json --rank $OMPI_COMM_WORLD_RANK --world-size "
                   "$OMPI_COMM_WORLD_SIZE --meet localhost:" +
                   std::to_string(free_port()) + " > " + dir.file("rank") + "$OMPI_COMM_WORLD_RANK'");
    INFO(launched.text);
    CHECK(read_file(dir.file("rank0")) == one.out);
  }

  const std::string before = dir.write("before.json", one.out);
  CHECK(run_tool({"check", pipeline, "--against", before}).code == 0);
  const ToolResult drifted = run_tool({"check", pipeline, "--against", before, "--json", "--set", "source.range=0:3"});
  CHECK(drifted.code == 1);
  CHECK(drifted.json().at("drifted") == true);
}

TEST_CASE("stats count a bad record once, also if each rank reads all of the data") {
  const TempDir dir;
  ExampleWriter example({"x"});
  for (const char* name : {"a.tfrecord", "b.tfrecord"}) {
    RecordWriter writer(dir.file(name));
    for (int64_t record = 0; record < 5000; record++) {
      example.set_ints(0, {&record, 1});
      const auto bytes = example.finish();
      // Each rank is given one of these, among its 4096 rows of a step. They do not parse.
      writer.write(record == 100 || record == 2500 ? bytes.first(1) : bytes);
    }
    writer.close();
  }
  const std::string pipeline =
      dir.write("p.textproto",
                "source { files: '*.tfrecord' } interleave { cycle_length: 2 } errors { on_error: SKIP_RECORD } "
                "feature { name: 'x' dtype: INT64 } batch { global_batch_size: 2 }");
  const ToolResult one = run_tool({"stats", pipeline, "--json"});
  INFO(one.err);
  REQUIRE(one.code == 0);
  CHECK(one.json().at("bad_records") == 4);
  CHECK(stats_of_two_ranks(pipeline) == one.out);
}

namespace {

/// Calls f(path) after each change of one place in the document: a key removed, or a value of another type.
template <typename F>
void for_each_mutation(Json& root, Json& node, const std::string& path, F&& f) {
  const Json others[] = {nullptr, true, -1, 1.5, "text", Json::array(), Json::object(), {{"x", {1}}}, {{1, 2}, "y"}};
  if (node.is_object()) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : node.items()) keys.push_back(key);
    for (const std::string& key : keys) {
      const Json whole = node;
      node.erase(key);
      f(path + "/" + key + " removed");
      node = whole;
      for_each_mutation(root, node.at(key), path + "/" + key, f);
    }
  } else if (node.is_array()) {
    const Json whole = node;
    if (!node.empty()) node.erase(node.size() - 1);
    f(path + " cut short");
    node = whole;
    for (size_t i = 0; i < std::min<size_t>(node.size(), 2); i++)
      for_each_mutation(root, node.at(i), path + "/" + std::to_string(i), f);
  }
  const Json value = node;
  for (const Json& other : others) {
    node = other;
    f(path + " is " + other.dump());
  }
  node = value;
}

}  // namespace

TEST_CASE("statistics that lack a key, or have a value of another type, are refused or compared, and nothing else") {
  const TempDir dir;
  RecordWriter writer(dir.file("x.tfrecord"));
  ExampleWriter example({"list", "name", "label"});
  for (int64_t i = 0; i < 200; i++) {
    const std::vector<int64_t> list(static_cast<size_t>(i % 3), i), label = {i % 10};
    example.set_ints(0, list);
    example.set_bytes(1, std::string_view(i % 2 == 0 ? "even" : "odd"));
    example.set_ints(2, label);
    writer.write(example.finish());
  }
  writer.close();
  const std::string pipeline = dir.write(
      "p.textproto",
      "source { files: 'x.tfrecord' } batch { global_batch_size: 32 } feature { name: 'name' dtype: BYTES } feature { "
      "name: 'list' dtype: INT64 kind: VARIABLE } feature { name: 'label' dtype: INT64 } output { name: 'name' "
      "feature: 'name' } output { name: 'list' feature: 'list' } output { name: 'class' feature: 'label' one_hot { "
      "classes: 10 } }");
  const ToolResult all = run_tool({"stats", pipeline, "--json", "--records", "100%"});
  INFO(all.err);
  REQUIRE(all.code == 0);
  const Json now = Json::parse(all.out);
  REQUIRE(find_drift(now, now, {}).empty());
  Json before = now;
  int refused = 0, compared = 0;
  for_each_mutation(before, before, "", [&](const std::string& what) {
    INFO(what);
    try {
      find_drift(before, now, {});
      compared++;
    } catch (const Json::exception&) {
      refused++;
    }
  });
  CHECK(before == now);
  CHECK(refused > 200);
  CHECK(compared > 200);

  const auto check = [&](const Json& document) {
    return run_tool({"check", pipeline, "--against", dir.write("before.json", document.dump())});
  };
  CHECK(check(now).code == 0);
  before["outputs"][0].erase("labels");
  const ToolResult lacks = check(before);
  CHECK(lacks.code == 1);
  CHECK_THAT(lacks.err, Catch::Contains("the file does not hold what `feedline stats --json` prints: key 'labels' not "
                                        "found; make the file again"));
  // A value so deep that a walk over it would take the whole stack.
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  const ToolResult nested =
      run_tool({"check", pipeline, "--against",
                dir.write("deep.json", R"({"feedline_json": 1, "outputs": [{"name": "n", "shape": )" + deep + "}]}")});
  CHECK(nested.code == 1);
  CHECK_THAT(nested.err, Catch::Contains("does not hold statistics"));
}

TEST_CASE("counts of labels that are no counts are refused") {
  const auto statistics = [](const std::string& count) {
    return Json::parse(R"({"samples": 2, "bad_records": 0, "outputs": [{"name": "a", "dtype": "INT64", "shape": [],
      "ragged": false, "rows": 2, "missing": null, "labels": [[1, 2]], "numbers": {"count": 2, "nan": 0, "infinite": 0,
      "min": 1, "max": 1, "percentiles": [1], "values": [[1, )" +
                       count + "]]}}]}");
  };
  const Json now = statistics("2");
  CHECK(find_drift(now, now, {}).empty());
  for (const char* count : {"1e300", "1.5", "-1", "null"})
    CHECK_THROWS_AS(find_drift(statistics(count), now, {}), Json::exception);
}

TEST_CASE("stats count clips as they are stored") {
  const TempDir dir;
  const std::string clips =
      dir.write("clips.textproto", run_tool({"inspect", "--pipeline", golden("video/clips.tfrecord")}).out);
  const json stats = run_tool({"stats", clips, "--json"}).json();
  for (const json& output : stats.at("outputs")) {
    if (output.at("name") != "image/encoded") continue;
    CHECK(output.at("dtype") == "BYTES");
    CHECK(output.at("rows") == 6);
    return;
  }
  FAIL("no such output");
}

TEST_CASE("statistics that another rank made up are refused") {
  const auto told = [](const std::string& bytes) {
    MessageReader in(bytes, 2);
    ValueStats stats(DType::int64);
    stats.get(in);
    in.end();
  };
  ValueStats stats(DType::int64);
  const std::vector<int64_t> numbers = {5, 7, 7};
  stats.add(std::span(numbers));
  MessageWriter out;
  stats.put(out);
  const std::string sound = out.take();
  CHECK_NOTHROW(told(sound));
  // Ten numbers, the least and the largest; whether these are integers; 4 bytes: bits; how many cells; each cell: its key,
  // value, count, and whether it has several values.
  enum : size_t {
    count = 0,
    zeros = 8,
    least = 80,
    most = 88,
    integers = 96,
    bits = 104,
    cells = 108,
    value = 124,
    times = 132
  };
  const auto with = [&](size_t at, int64_t number, size_t bytes = 8) {
    std::string other = sound;
    std::memcpy(other.data() + at, &number, bytes);
    return other;
  };
  for (const auto& [at, number] : std::vector<std::pair<size_t, int64_t>>{{count, 2},
                                                                          {count, 4},
                                                                          {zeros, 4},
                                                                          {least, 6},
                                                                          {most, 6},
                                                                          {integers, 0},
                                                                          {integers, 2},
                                                                          {cells, 1},
                                                                          {cells, 3},
                                                                          {value, 8},
                                                                          {value, 4},
                                                                          {times, 0},
                                                                          {times, 9},
                                                                          {times + 8, 2}}) {
    INFO(at << " " << number);
    CHECK_THROWS_WITH(told(with(at, number)), Catch::Contains("the message of rank 2"));
  }
  for (const int64_t number : {-1, 63, 65, 1 << 30, -(1 << 30)}) {
    INFO(number << " bits");
    CHECK_THROWS_WITH(told(with(bits, number, 4)), Catch::Contains("bits"));
  }
  TextCounts texts;
  MessageWriter many;
  many.put<uint64_t>(0);
  many.put<uint64_t>(TextCounts::most + 1);
  std::string bytes = many.take();
  MessageReader in(bytes);
  CHECK_THROWS_WITH(texts.get(in), Catch::Contains("too many texts"));
  many.put<uint64_t>(0);
  many.put<uint64_t>(1);
  many.put_text(std::string(TextCounts::longest + 1, 'x'));
  many.put<uint64_t>(1);
  bytes = many.take();
  MessageReader long_text(bytes);
  CHECK_THROWS_WITH(texts.get(long_text), Catch::Contains("too long"));
}
