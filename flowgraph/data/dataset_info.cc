#include "flowgraph/data/dataset_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/parse.h"
#include "feedline/error.h"
#include "io/file.h"
#include "io/read/source.h"

namespace feedline::flow {
namespace {

using nlohmann::json;

constexpr size_t most_splits = 1000;

/// A part of the names of a split's files.
struct NamePart {
  enum class Kind : uint8_t {
    literal,
    anything,
    word,   // letters and underscores
    shard,  // the number of the file's shard
    shards  // how many shards there are
  } kind;
  std::string text = {};  // literal
};
/// A split, as dataset_info.json describes it.
struct Split {
  std::vector<NamePart> file;     // the parts that the names of its files consist of
  std::vector<uint64_t> lengths;  // the records of each shard
};
using Splits = std::vector<Split>;

// Reads an int64 as protobuf's JSON writes it, which is a string, or as people write it, which is a number.
std::optional<uint64_t> number(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  return value.is_string() ? parse_number<uint64_t>(value.get_ref<const std::string&>()) : std::nullopt;
}

// Returns the parts of the file names that a template of TensorFlow Datasets (ShardedFileTemplate) stands for. Such a
// template is "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}". {DATASET} stands for anything, because a data set may
// have been renamed. Returns nullopt if file names cannot be compared with the template.
std::optional<std::vector<NamePart>> parts_of(std::string_view text, const std::string& split) {
  using Kind = NamePart::Kind;
  const std::pair<std::string_view, std::vector<NamePart>> variables[] = {
      {"{DATASET}", {{Kind::anything}}},  {"{SPLIT}", {{Kind::literal, split}}},
      {"{FILEFORMAT}", {{Kind::word}}},   {"{SHARD_INDEX}", {{Kind::shard}}},
      {"{NUM_SHARDS}", {{Kind::shards}}}, {"{SHARD_X_OF_Y}", {{Kind::shard}, {Kind::literal, "-of-"}, {Kind::shards}}}};
  std::vector<NamePart> parts;
  while (!text.empty()) {
    if (const std::string_view literal = text.substr(0, text.find('{')); !literal.empty()) {
      parts.push_back({Kind::literal, std::string(literal)});
      text.remove_prefix(literal.size());
      continue;
    }
    const auto variable =
        std::ranges::find_if(variables, [&](const auto& each) { return text.starts_with(each.first); });
    if (variable == std::end(variables)) return std::nullopt;
    parts.insert(parts.end(), variable->second.begin(), variable->second.end());
    text.remove_prefix(variable->first.size());
  }
  const auto count = [&](Kind kind) { return std::ranges::count(parts, kind, &NamePart::kind); };
  const bool once = count(Kind::anything) <= 1 && count(Kind::shard) == 1 && count(Kind::shards) <= 1;
  return once ? std::optional(std::move(parts)) : std::nullopt;
}

std::optional<Splits> parse_splits(const std::string& text) {
  const json info = json::parse(text, nullptr, false);
  if (!info.is_object()) return std::nullopt;
  const json usual("{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}");
  Splits splits;
  const auto all = info.find("splits");
  if (all == info.end() || !all->is_array()) return splits;
  for (const json& split : *all) {
    if (!split.is_object() || !split.contains("name") || !split["name"].is_string()) return std::nullopt;
    if (!split.contains("shardLengths")) continue;
    const auto given = split.find("filepathTemplate");
    const json& names = given == split.end() ? usual : *given;  // copying deep values could take the whole stack
    if (!names.is_string()) return std::nullopt;
    auto file = parts_of(names.get_ref<const std::string&>(), split["name"].get_ref<const std::string&>());
    if (!file || splits.size() == most_splits) return std::nullopt;
    splits.push_back({std::move(*file), {}});
    for (const json& length : split["shardLengths"]) {
      const auto records = number(length);
      if (!records) return std::nullopt;
      splits.back().lengths.push_back(*records);
    }
  }
  return splits;
}

// Returns the splits of a folder. Returns no splits if the folder has no dataset_info.json. If that file cannot be
// read, returns no splits and adds a warning.
Splits read(const std::filesystem::path& folder, std::vector<std::string>& warnings) {
  constexpr uint64_t longest = uint64_t{64} << 20;
  const std::filesystem::path path = folder / "dataset_info.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  try {
    const io::InputFile file(path.string());
    std::string text(std::min(file.size(), longest), '\0');
    file.read_at(0, std::as_writable_bytes(std::span(text)));
    if (auto splits = parse_splits(text)) return std::move(*splits);
    warnings.push_back(
        fmt::format("{}: this is not the format of TensorFlow Datasets, so the record counts of shards "
                    "are not compared with this file",
                    path.string()));
  } catch (const Error& unreadable) {
    warnings.push_back(unreadable.what());
  }
  return {};
}

/// A name such as "mnist-train.tfrecord-00002-of-00010", which says that the file is shard 2 of 10 shards.
struct ShardName {
  std::string_view stem;   // what comes before the dash and the number
  std::string_view total;  // "-of-00010"
  std::string_view end;    // what comes after that, such as ".gz"
  uint64_t shard = 0, shards = 0;
  size_t digits = 0;  // of the first number
};

std::optional<ShardName> shard_name(std::string_view name) {
  const size_t of = name.rfind("-of-");
  if (of == 0 || of == std::string_view::npos) return std::nullopt;
  const size_t dash = name.rfind('-', of - 1);
  if (dash == std::string_view::npos) return std::nullopt;
  const size_t end = std::min(name.find_first_not_of("0123456789", of + 4), name.size());
  const auto shard = parse_number<uint64_t>(name.substr(dash + 1, of - dash - 1));
  const auto shards = parse_number<uint64_t>(name.substr(of + 4, end - of - 4));
  if (!shard || !shards || *shard >= *shards) return std::nullopt;
  return ShardName{name.substr(0, dash), name.substr(of, end - of), name.substr(end), *shard, *shards, of - dash - 1};
}

// Warns of shards that are missing among `files` and do not exist. (Shards that exist may have been left out on
// purpose, by the pattern of source.files.)
void warn_of_missing(const std::vector<DataFile>& files, std::vector<std::string>& warnings) {
  struct Shards {
    ShardName first;
    std::string_view folder;
    std::vector<bool> there;
  };
  constexpr uint64_t most_shards = 1 << 20;  // a larger number is not taken for a number of shards
  std::map<std::string, Shards> kinds;
  for (const DataFile& file : files) {
    const std::string_view path = file.id.uri, name = file.name();
    const auto shard = shard_name(name);
    if (!shard || shard->shards > most_shards || !io::is_path(path)) continue;
    const std::string_view folder = path.substr(0, path.size() - name.size());
    Shards& kind = kinds[fmt::format("{}{}{}{}", folder, shard->stem, shard->total, shard->end)];
    if (kind.there.empty()) kind = {*shard, folder, std::vector<bool>(shard->shards)};
    kind.there[shard->shard] = true;
  }
  for (const auto& [text, kind] : kinds) {
    const auto& [first, folder, there] = kind;
    if (std::ranges::all_of(there, std::identity())) continue;
    std::set<std::string> names;  // all names in the folder: to look up each missing name would take long on a network
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), last; !error && it != last; it.increment(error))
      names.insert(it->path().filename().string());
    if (error) continue;
    std::string missing;
    uint64_t count = 0;
    for (uint64_t shard = 0; shard < first.shards; shard++) {
      if (there[shard]) continue;
      std::string name = fmt::format("{}-{:0{}}{}{}", first.stem, shard, first.digits, first.total, first.end);
      if (names.contains(name)) continue;
      if (count++ == 0) missing = std::string(folder) + name;
    }
    if (count > 0)
      warnings.push_back(
          fmt::format("{} does not exist{}, but other files of this set of {} shards do; check whether "
                      "data is missing",
                      missing, count > 1 ? fmt::format(" (and {} more)", count - 1) : "", first.shards));
  }
}

/// The number of a file's shard, and of all shards, as far as the file's name has them.
struct FoundShard {
  std::optional<uint64_t> shard, shards;
};

// Returns the numbers in a name, if the name consists of these parts; nullopt if it does not.
std::optional<FoundShard> match(std::span<const NamePart> parts, std::string_view name, FoundShard found = {}) {
  for (; !parts.empty(); parts = parts.subspan(1)) {
    const NamePart& part = parts[0];
    if (part.kind == NamePart::Kind::anything) {  // comes at most once, so the recursion has one level
      for (size_t skipped = 1; skipped <= name.size(); skipped++)
        if (const auto all = match(parts.subspan(1), name.substr(skipped), found)) return all;
      return std::nullopt;
    }
    size_t size = part.text.size();
    if (part.kind != NamePart::Kind::literal) {
      const bool is_word = part.kind == NamePart::Kind::word;
      const auto belongs = [&](char c) {
        return is_word ? ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' : c >= '0' && c <= '9';
      };
      size = static_cast<size_t>(std::ranges::find_if_not(name, belongs) - name.begin());
      const auto value = parse_number<uint64_t>(name.substr(0, size));
      if (size == 0 || (!is_word && !value)) return std::nullopt;
      if (!is_word) (part.kind == NamePart::Kind::shard ? found.shard : found.shards) = value;
    } else if (!name.starts_with(part.text)) {
      return std::nullopt;
    }
    name.remove_prefix(size);
  }
  return name.empty() ? std::optional(found) : std::nullopt;
}

// Returns the number of records that the file should have; null if it is not known.
const uint64_t* expected(const Splits& splits, std::string_view name) {
  for (const Split& split : splits) {
    const auto found = match(split.file, name);
    const uint64_t shards = split.lengths.size();
    if (found && found->shard < shards && found->shards.value_or(shards) == shards)
      return &split.lengths[*found->shard];
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> check_dataset_info(const std::vector<DataFile>& files) {
  constexpr size_t most = 10;
  std::vector<std::string> warnings, wrong;
  std::map<std::string, Splits, std::less<>> folders;
  for (const DataFile& file : files) {
    const std::string_view path = file.id.uri;
    if (!io::is_path(path)) continue;  // only local folders are looked into
    const size_t name = path.rfind('/') + 1;
    auto folder = folders.find(path.substr(0, name));
    if (folder == folders.end())
      folder = folders.emplace(path.substr(0, name), read(path.substr(0, name), warnings)).first;
    const uint64_t* records = expected(folder->second, path.substr(name));
    if (records && *records != file.index.records)
      wrong.push_back(fmt::format("{}: the file has {} good records, but dataset_info.json in its folder says {}", path,
                                  file.index.records, *records));
  }
  warn_of_missing(files, warnings);
  const size_t more = wrong.size() > most ? wrong.size() - most : 0;
  wrong.resize(wrong.size() - more);
  if (more) wrong.back() += fmt::format(" (and {} more shards)", more);
  warnings.insert(warnings.end(), wrong.begin(), wrong.end());
  return warnings;
}

}  // namespace feedline::flow
