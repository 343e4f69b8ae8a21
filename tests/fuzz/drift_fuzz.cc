// Statistics that `feedline stats --json` printed, read again and compared with others: the drifts of a slow, simple
// comparison. Any other document is refused, or compared without harm.
// covers: tool/stats/drift.cc tool/stats/sample_size.cc
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "draw.h"
#include "feedline/error.h"
#include "require.h"
#include "tests/support/temp_dir.h"
#include "tool/common/usage_error.h"
#include "tool/stats/drift.h"
#include "tool/stats/sample_size.h"

namespace {

using namespace feedline;
using namespace feedline::tool;
using test::Draw;
using test::require;

/// Numbers of an output, as far as they are compared. Every one of them is counted.
struct Numbers {
  std::map<int, uint64_t> counts;  // by value
  uint64_t nan = 0, infinite = 0;
  bool too_many = false;  // different values to list them

  uint64_t finite() const {
    uint64_t all = 0;
    for (const auto& [value, count] : counts) all += count;
    return all;
  }
  std::vector<int> percentiles() const {
    std::vector<int> all;
    uint64_t seen = 0;
    for (const auto& [value, count] : counts) {
      seen += count;
      while (all.size() < 99 && seen * 100 >= (all.size() + 1) * finite()) all.push_back(value);
    }
    return all;
  }
  Json json() const {
    Json json = {{"count", finite() + nan + infinite},
                 {"nan", nan},
                 {"infinite", infinite},
                 {"min", nullptr},
                 {"max", nullptr},
                 {"percentiles", nullptr},
                 {"values", nullptr}};
    if (counts.empty()) return json;
    json["min"] = counts.begin()->first;
    json["max"] = counts.rbegin()->first;
    json["percentiles"] = percentiles();
    if (too_many) return json;
    json["values"] = Json::array();
    for (const auto& [value, count] : counts) json["values"].push_back({value, count});
    return json;
  }
};

struct Output {
  std::string name, dtype;
  uint64_t rows = 0;
  std::optional<uint64_t> missing;
  bool labels = false, texts = false;  // whether there are labels, and whether they are texts
  Numbers numbers;
  std::optional<Numbers> lengths;

  Json json() const {
    Json json = {
        {"name", name}, {"dtype", dtype}, {"shape", Json::array()}, {"ragged", lengths.has_value()}, {"rows", rows}};
    const Json list = numbers.json()["values"];
    json[texts ? "sizes" : "numbers"] = numbers.json();
    if (texts) json["texts"] = list;
    if (lengths) json["lengths"] = lengths->json();
    json["missing"] = missing ? Json(*missing) : Json();
    json["labels"] = labels ? list : Json();
    return json;
  }
};

struct Statistics {
  uint64_t samples = 0, bad = 0;
  Json records;           // what part of the data was counted
  bool is_sample = true;  // whether that is one
  std::vector<Output> outputs;

  Json json() const {
    Json json = {{"feedline_json", document_version},
                 {"samples", samples},
                 {"samples_of_data", nullptr},
                 {"records", records},
                 {"bad_records", bad},
                 {"outputs", Json::array()}};
    for (const Output& output : outputs) json["outputs"].push_back(output.json());
    return json;
  }
};

Numbers draw_numbers(Draw& draw) {
  Numbers numbers;
  for (uint64_t left = draw.below(5); left > 0; left--)
    numbers.counts[static_cast<int>(draw.below(9)) - 3] = 1 + draw.near(8) % 1000;
  if (draw.below(4) == 1) numbers.nan = draw.below(9);
  if (draw.below(4) == 1) numbers.infinite = draw.below(9);
  return numbers;
}

Statistics draw_statistics(Draw& draw) {
  Statistics statistics{
      .samples = draw.below(99), .bad = draw.below(4) == 1 ? draw.below(9) : 0, .records = {}, .outputs = {}};
  static const std::string parts[] = {"1", "1000", "1%", "100%", "0.5%", "0", "0%", "101%", "1%%", "-1", "1e3", ""};
  if (draw.below(4) == 1) {
    const uint64_t part = draw.below(12);
    statistics.records = parts[part];
    statistics.is_sample = part < 5;
  }
  static const std::string names[] = {"a", "b", "c\n"}, types[] = {"INT64", "FLOAT32"};
  for (const std::string& name : names) {
    if (draw.coin()) continue;
    Output& output = statistics.outputs.emplace_back();
    output.name = name;
    output.dtype = types[draw.below(4) == 1];
    output.rows = draw.below(99);
    if (draw.coin()) output.missing = draw.below(output.rows + 1);
    output.numbers = draw_numbers(draw);
    output.numbers.too_many = draw.below(4) == 1;
    output.texts = draw.below(4) == 1;
    output.labels = draw.coin() && !output.numbers.too_many && !output.numbers.counts.empty();
    if (draw.below(4) == 1) output.lengths = draw_numbers(draw);
  }
  return statistics;
}

double share(uint64_t part, uint64_t all) { return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0; }

using Kinds = std::multiset<std::pair<std::string, std::string>>;  // outputs and kinds of drifts

void compare_numbers(const std::string& name, bool by_label, const Numbers& was, const Numbers& is,
                     const DriftBounds& bounds, Kinds& kinds) {
  const auto odd = [](const Numbers& of) { return share(of.nan + of.infinite, of.finite() + of.nan + of.infinite); };
  if (odd(is) - odd(was) > bounds.missing) kinds.emplace(name, "not_finite");
  if (was.counts.empty()) return;
  if (is.finite() + is.nan + is.infinite == 0) kinds.emplace(name, "empty");
  if (is.counts.empty()) return;
  const double width = was.counts.rbegin()->first - was.counts.begin()->first,
               outside = std::max(was.counts.begin()->first - is.counts.begin()->first,
                                  is.counts.rbegin()->first - was.counts.rbegin()->first);
  if (outside > 0 && (width == 0 || outside / width > bounds.range)) kinds.emplace(name, "range");
  if (by_label) return;
  const std::vector<int> of_was = was.percentiles(), of_is = is.percentiles();
  double moved = 0;
  for (int value = -3; value < 6; value++) {
    const auto up_to = [value](int percentile) { return percentile <= value; };
    const auto then = std::ranges::count_if(of_was, up_to), now = std::ranges::count_if(of_is, up_to);
    moved = std::max(moved, std::abs(static_cast<double>(now) / 100 - static_cast<double>(then) / 100));
  }
  if (moved > bounds.shift) kinds.emplace(name, "shift");
}

void compare_labels(const Output& was, const Output& is, const DriftBounds& bounds, Kinds& kinds) {
  if (!is.texts && is.numbers.finite() + is.numbers.nan + is.numbers.infinite == 0) return;
  if (is.numbers.counts.empty() || is.numbers.too_many) return void(kinds.emplace(was.name, "labels"));
  double fresh = 0, moved = 0;
  for (const auto& [value, count] : is.numbers.counts) {
    const auto before = was.numbers.counts.find(value);
    const bool is_new = before == was.numbers.counts.end();
    const double now = share(count, is.numbers.finite()),
                 then = is_new ? 0 : share(before->second, was.numbers.finite());
    fresh += is_new ? now : 0;
    moved += std::max(0.0, now - then);
  }
  if (fresh > bounds.new_labels) kinds.emplace(was.name, "new_labels");
  if (moved > bounds.shift) kinds.emplace(was.name, "shift");
}

Kinds compare(const Statistics& before, const Statistics& now, const DriftBounds& bounds) {
  Kinds kinds;
  if (share(now.bad, now.bad + now.samples) - share(before.bad, before.bad + before.samples) > bounds.missing)
    kinds.emplace("", "bad_records");
  const auto named = [](const Statistics& in, const std::string& name) {
    const auto found = std::ranges::find(in.outputs, name, &Output::name);
    return found == in.outputs.end() ? nullptr : &*found;
  };
  for (const Output& output : now.outputs)
    if (!named(before, output.name)) kinds.emplace(output.name, "output");
  for (const Output& was : before.outputs) {
    const Output* const is = named(now, was.name);
    if (!is || was.dtype != is->dtype || was.lengths.has_value() != is->lengths.has_value()) {
      kinds.emplace(was.name, is ? "type" : "output");
      continue;
    }
    if (was.missing && is->missing && share(*is->missing, is->rows) - share(*was.missing, was.rows) > bounds.missing)
      kinds.emplace(was.name, "missing");
    if (was.labels) compare_labels(was, *is, bounds, kinds);
    if (was.texts == is->texts)
      compare_numbers(was.name + (was.texts ? ": bytes" : ""), was.labels && !was.texts, was.numbers, is->numbers,
                      bounds, kinds);
    if (was.lengths) compare_numbers(was.name + ": length", false, *was.lengths, *is->lengths, bounds, kinds);
  }
  return kinds;
}

Kinds kinds_of(const std::vector<Drift>& drifts) {
  Kinds kinds;
  for (const Drift& drift : drifts) {
    require(!drift.message.empty() && (drift.bound == 0 ? drift.found >= 0 : drift.found > drift.bound), drift.message);
    kinds.emplace(drift.output, drift.kind);
  }
  return kinds;
}

// Returns the values of a document, itself as well.
void values_of(Json& json, std::vector<Json*>& values) {
  values.push_back(&json);
  if (json.is_structured())
    for (Json& each : json) values_of(each, values);
}

std::string changed(Draw& draw, Json document) {
  std::vector<Json*> values;
  values_of(document, values);
  for (uint64_t left = 1 + draw.below(3); left > 0; left--) {
    Json& value = *values[draw.below(values.size())];
    static const Json others[] = {nullptr,       true,           -1, 1.5, 1e300, -1e300, "text", "deep",
                                  Json::array(), Json::object(), 0,  1};
    if (left == 1 && value.is_object() && !value.empty() && draw.coin())
      value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(draw.below(value.size()))));
    else if (!value.is_structured() || left == 1)
      value = value.is_number() && draw.coin() ? Json(draw.near(8)) : draw.one_of(others);
  }
  std::string text = document.dump();
  static const std::string marker = "\"deep\"", deep(30'000, '['), parts[] = {"x", "", "1e999", "["};
  if (draw.below(8) == 1) text.replace(draw.below(text.size()), draw.below(9), draw.one_of(parts));
  // A walk over such a value would take the whole stack.
  if (const size_t at = text.find(marker); at != text.npos)
    text.replace(at, marker.size(), deep + std::string(deep.size(), ']'));
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::TempDir folder;
  Draw draw(data, size);
  const auto bound = [&] { return static_cast<double>(draw.below(9)) / 8; };
  const DriftBounds bounds{bound(), bound(), bound(), bound()};
  const Statistics before = draw_statistics(draw), now = draw.coin() ? draw_statistics(draw) : before;
  const Json was = before.json(), is = now.json();
  const std::string text = draw.coin() ? was.dump() : changed(draw, was), path = folder.write("before.json", text);
  const bool is_right = text == was.dump();
  try {
    const Json read = read_statistics(path);
    if (is_right) require(read == was, "other statistics are read than were written");
    for (const auto& [output, kind] : kinds_of(find_drift(read, read, bounds)))
      require(!is_right && (kind == "empty" || kind == "labels"), "statistics drift from themselves: " + kind);
    const std::vector<Drift> drifts = find_drift(read, is, bounds);
    require(drift_json(drifts, bounds).at("drifts").size() == drifts.size(), "drifts are left out");
    const Kinds found = kinds_of(drifts), wanted = compare(before, now, bounds);
    for (const auto& [output, kind] : is_right&& found != wanted ? found : Kinds())
      std::fprintf(stderr, "found  '%s' %s\n", output.c_str(), kind.c_str());
    if (is_right) require(found == wanted, "other drifts than there are:\n" + was.dump() + "\n" + is.dump());
    if (!read.at("records").is_null()) {
      const uint64_t all = 1 + draw.near(1000) % 100'000;
      const uint64_t part = parse_sample_size(read.at("records").get<std::string>(), path).of(all);
      require(part >= 1 && part <= all && (before.is_sample || !is_right),
              "a sample of more than all, or that is none");
    }
  } catch (const Json::exception& error) {
    require(!is_right, error.what());
  } catch (const UsageError& error) {
    require(!is_right || !before.is_sample, error.what());
  } catch (const Error& error) {
    require(!is_right && error.category() == Category::bad_pipeline && error.place().file == path, error.what());
  }
  return 0;
}
