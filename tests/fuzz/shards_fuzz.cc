// dataset_info.json and the names of shards beside it: the warnings of a slow, simple reading, of which the names are drawn
// with their numbers.
// covers: flowgraph/data/dataset_info.cc
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "draw.h"
#include "flowgraph/data/dataset_info.h"
#include "require.h"
#include "tests/support/temp_dir.h"

namespace {

using namespace feedline;
using test::Draw;
using test::require;

const test::TempDir& folder() {
  static const test::TempDir dir;
  return dir;
}

/// A split of dataset_info.json. Of the parts of its files' names, those in braces are variables.
struct Split {
  std::string name = "train";
  std::vector<std::string> parts = {"{DATASET}", "-", "{SPLIT}", ".", "{FILEFORMAT}", "-", "{SHARD_X_OF_Y}"};
  std::vector<uint64_t> lengths;
};

uint64_t count_of(const Split& split, std::initializer_list<std::string_view> variables) {
  uint64_t count = 0;
  for (const std::string_view variable : variables) count += std::ranges::count(split.parts, variable);
  return count;
}

struct Found {
  std::optional<uint64_t> shard, shards;
};

/// Returns whether a name consists of these parts, of which numbers and words are as long as they can be.
bool consists_of(std::string_view name, std::span<const std::string> parts, const Split& split, Found& found) {
  if (parts.empty()) return name.empty();
  const std::string& part = parts[0];
  const auto goes_on = [&](size_t size) { return consists_of(name.substr(size), parts.subspan(1), split, found); };
  if (part == "{DATASET}") {
    for (size_t size = 1; size <= name.size(); size++)
      if (goes_on(size)) return true;
    return false;
  }
  if (part == "{SHARD_X_OF_Y}") {
    std::vector<std::string> all = {"{SHARD_INDEX}", "-of-", "{NUM_SHARDS}"};
    all.insert(all.end(), parts.begin() + 1, parts.end());
    return consists_of(name, all, split, found);
  }
  if (part == "{FILEFORMAT}") {
    const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    const auto size = static_cast<size_t>(std::ranges::find_if_not(name, is_letter) - name.begin());
    return size > 0 && goes_on(size);
  }
  if (part == "{SHARD_INDEX}" || part == "{NUM_SHARDS}") {
    const size_t size = std::min(name.find_first_not_of("0123456789"), name.size());
    if (size == 0 || size > 18) return false;
    (part == "{SHARD_INDEX}" ? found.shard : found.shards) = std::stoull(std::string(name.substr(0, size)));
    return goes_on(size);
  }
  const std::string_view literal = part == "{SPLIT}" ? std::string_view(split.name) : part;
  return name.starts_with(literal) && goes_on(literal.size());
}

/// Draws splits and how dataset_info.json says them. Returns nullopt for a text that is to be refused.
std::optional<std::vector<Split>> draw_splits(Draw& draw, std::string& text) {
  std::vector<Split> splits;
  bool refused = false;
  text = R"({"name": "n", "splits": [)";
  for (uint64_t left = draw.below(64) == 1 ? 999 + draw.below(3) : draw.below(4); left > 0; left--) {
    Split split;
    static const std::string names[] = {"train", "a-b", "", "te{st"};
    split.name = names[draw.coin() ? 0 : draw.below(4)];
    std::string lengths, file;
    bool good = true;
    for (uint64_t count = draw.below(5); count > 0; count--) {
      static const std::string bad[] = {"-1", "1.5", "\"x\"", "\"\"", "\"18446744073709551616\"", "null", "[]"};
      split.lengths.push_back(draw.near(9));
      const std::string number = std::to_string(split.lengths.back()), *wrong = draw.below(24) == 1 ? bad : nullptr;
      lengths += (lengths.empty() ? "" : ", ") + (wrong         ? wrong[draw.below(7)]
                                                  : draw.coin() ? '"' + number + '"'
                                                                : number);
      good &= !wrong;
    }
    if (draw.coin()) {
      static const std::string parts[] = {
          "{SHARD_INDEX}", "{NUM_SHARDS}", "{SHARD_X_OF_Y}", "{DATASET}", "{SPLIT}", "{FILEFORMAT}", "-", "7", "_x",
          "{OTHER}"};
      split.parts.clear();
      for (uint64_t count = draw.below(6); count > 0; count--) split.parts.push_back(draw.one_of(parts));
      for (const std::string& part : split.parts) file += part;
      file = R"("filepathTemplate": ")" + file + "\", ";
    }
    good &= count_of(split, {"{OTHER}"}) == 0 && count_of(split, {"{DATASET}"}) <= 1 &&
            count_of(split, {"{SHARD_INDEX}", "{SHARD_X_OF_Y}"}) == 1 &&
            count_of(split, {"{NUM_SHARDS}", "{SHARD_X_OF_Y}"}) <= 1;
    const bool is_named = draw.below(24) != 1, has_lengths = draw.below(8) != 1;
    text += (text.ends_with('[') ? "{" : ", {") + file;
    if (is_named) text += R"("name": ")" + split.name + "\", ";
    if (has_lengths) text += R"("shardLengths": [)" + lengths + "], ";
    text += R"("numBytes": "5"})";
    refused |= !is_named || (has_lengths && !good);
    if (has_lengths) splits.push_back(std::move(split));
  }
  text += "]}";
  return refused || splits.size() > 1000 ? std::nullopt : std::optional(std::move(splits));
}

/// Changes the text, so that nothing is known of it.
void spoil(Draw& draw, std::string& text) {
  if (draw.below(8) == 1) {  // a walk over it would take the whole stack
    const std::string deep(30'000, '[');
    text = R"({"splits": [{"name": "x", "shardLengths": [], "filepathTemplate": )" + deep +
           std::string(deep.size(), ']') + "}]}";
    return;
  }
  static const std::string others[] = {"null", "{}", "[]", "\"x\"", "1e999", "\\ud800", "5"};
  const size_t at = draw.below(text.size() + 1);
  if (draw.coin()) text.resize(at);
  text.replace(at, draw.below(12), draw.one_of(others));
}

void dataset_info(Draw& draw) {
  std::string text;
  auto splits = draw_splits(draw, text);
  const bool spoiled = draw.below(8) == 1;
  if (spoiled) spoil(draw, text);
  folder().write("dataset_info.json", text);

  std::vector<flow::DataFile> files;
  std::vector<std::string> wrong;
  struct Shards {
    std::set<uint64_t> there;
    uint64_t all = 0;
  };
  std::map<std::string, Shards> sets;     // by the names without the shard's number
  const bool alike = draw.below(4) == 1;  // most names are those of one split
  for (uint64_t left = draw.below(16); left > 0; left--) {
    static const std::string starts[] =
        {"mnist-train.tfrecord-", "mnist-train.-", "a-b.riegeli-", "-", "", "7", "x-a-b._x"},
                             folders[] = {folder().path() + "/", "s3://bucket/", "/nowhere/"};
    const uint64_t all = splits && !splits->empty() && (alike || draw.coin())
                             ? (*splits)[alike ? 0 : draw.below(splits->size())].lengths.size()
                             : draw.below(5);
    const bool is_of_split = alike && all > 0 && draw.below(8) > 0;
    const uint64_t shard = is_of_split ? draw.below(all) : draw.near(all),
                   wanted = is_of_split || draw.coin() ? all : draw.near(all);
    const uint64_t shards = wanted > 1 << 20 ? wanted : wanted % 5000;  // each one that is missing takes time
    const int digits = is_of_split || draw.coin() ? 5 : 1;
    char number[64], of[64];
    std::snprintf(number, sizeof number, "%0*llu", digits, static_cast<unsigned long long>(shard));
    std::snprintf(of, sizeof of, "%0*llu", digits, static_cast<unsigned long long>(shards));
    const std::string start = starts[is_of_split || draw.coin() ? 0 : draw.below(7)],
                      end = !is_of_split && draw.below(4) == 1 ? ".gz" : "",
                      in = folders[is_of_split || draw.coin() ? 0 : draw.below(3)];
    const bool has_total = is_of_split || draw.below(4) != 1;
    const std::string name = start + number + (has_total ? std::string("-of-") + of + end : "");
    flow::DataFile& file = files.emplace_back();
    file.id.uri = in + name;
    file.index.records = draw.near(9);
    if (has_total && start.ends_with('-') && shard < shards && shards <= 1 << 20 && in.starts_with('/')) {
      Shards& set = sets[in + start + of + end];
      set.there.insert(shard);
      set.all = shards;
    }
    if (in != folders[0] || !splits) continue;
    for (const Split& split : *splits) {
      Found found;
      if (!consists_of(name, split.parts, split, found) || *found.shard >= split.lengths.size() ||
          found.shards.value_or(split.lengths.size()) != split.lengths.size())
        continue;
      const uint64_t records = split.lengths[*found.shard];
      if (records != file.index.records)
        wrong.push_back(file.id.uri + ": the file has " + std::to_string(file.index.records) +
                        " good records, but dataset_info.json in its folder says " + std::to_string(records));
      break;
    }
  }
  const auto warnings = flow::check_dataset_info(files);
  const auto count = [&](std::string_view what) {
    return std::ranges::count_if(warnings,
                                 [&](const std::string& warning) { return warning.find(what) != warning.npos; });
  };
  const auto missing = std::ranges::count_if(sets, [&](const auto& set) {
    return set.second.there.size() < set.second.all && !set.first.starts_with("/nowhere/");
  });
  require(count(" does not exist") == missing, "other shards are missing than it says");
  if (spoiled) return;
  const bool read =
      std::ranges::any_of(files, [](const auto& file) { return file.id.uri.starts_with(folder().path()); });
  require(count("this is not the format of TensorFlow Datasets") == (read && !splits),
          "a text is refused, or is not: " + text);
  require(count(" good records, but ") == static_cast<int64_t>(std::min<size_t>(10, wrong.size())),
          "other shards are wrong");
  for (size_t i = 0; i < std::min<size_t>(10, wrong.size()); i++)
    require(warnings[warnings.size() - std::min<size_t>(10, wrong.size()) + i].starts_with(wrong[i]), wrong[i]);
  if (wrong.size() > 10)
    require(warnings.back().ends_with("(and " + std::to_string(wrong.size() - 10) + " more shards)"), warnings.back());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Draw draw(data, size);
  dataset_info(draw);
  return 0;
}
