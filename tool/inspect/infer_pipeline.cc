#include "tool/inspect/infer_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "base/byte_size.h"
#include "feedline/error.h"
#include "tool/common/json.h"
#include "tool/common/picture_stats.h"
#include "tool/common/pipeline_text.h"
#include "tool/common/terminal.h"
#include "tool/inspect/shard_patterns.h"

namespace feedline::cli {
namespace {

/// A feature as the pipeline names it; or, in a comment line, why it cannot be fed.
struct Described {
  std::optional<TextFeature> feature;
  std::string left_out = {};
};

Described describe_feature(const std::string& key, const FeatureStats& stats, uint64_t records) {
  std::vector<Kind> kinds;
  for (const Kind kind : {Kind::bytes_list, Kind::float_list, Kind::int64_list})
    if (stats.of(kind).records) kinds.push_back(kind);
  if (kinds.empty())
    return {{}, fmt::format("# feature {} is left out: no record has a value of it\n", text_literal(key))};
  if (kinds.size() > 1) {
    std::string found;
    for (const Kind kind : kinds) {
      found += fmt::format("{}{} in {}", found.empty() ? "" : ", ", name(kind),
                           format_count(stats.of(kind).records, "record"));
    }
    return {{}, fmt::format("# feature {} is left out: its values have several kinds: {}\n", text_literal(key), found)};
  }

  const Kind kind = kinds.front();
  const KindStats& values = stats.of(kind);
  const bool fixed = values.count_min == values.count_max && values.count_min > 0;
  TextFeature feature{.key = key, .kind = kind, .variable = !fixed, .missing = values.records < records};
  const auto remark = [&](const std::string& text) { feature.remark += (feature.remark.empty() ? "" : "; ") + text; };
  if (!fixed) remark(fmt::format("{} values", format_range(values.count_min, values.count_max)));
  if (fixed && values.count_min > 1) feature.shape = {static_cast<int64_t>(values.count_min)};
  const bool are_pictures = values.pictures.are_most_of(values.total);
  if (kind == Kind::bytes_list && values.total) {
    if (values.length_min == values.length_max && values.length_min > 0 && !(fixed && feature.missing) && !are_pictures)
      feature.length = static_cast<int64_t>(values.length_min);
    else
      remark(fmt::format("{} bytes", format_range(values.length_min, values.length_max)));
  }
  if (are_pictures) {
    remark(describe(values.pictures, values.total));
    if (values.count_min == 1 && values.count_max == 1 && !feature.missing)
      decode_pictures(feature, values.pictures, values.total);
    else
      remark("delivered as they are, because a picture is decoded only where each record has one");
  }
  if (feature.missing)
    remark(fmt::format("in {} of {}", format_count(values.records), format_count(records, "record")));
  return {std::move(feature)};
}

/// The keys that some record of a file has, and those that every record has.
struct FileKeys {
  explicit FileKeys(const DataStats& file) {
    for (const auto& [key, stats] : file.features()) {
      uint64_t records = 0;
      for (const KindStats& kind : stats.kinds) records += kind.records;
      some.insert(key);
      if (records >= file.records()) every.insert(key);
    }
  }
  std::set<std::string> some, every;
};

/// Returns a key that every record of one file has, and no record of the other.
std::optional<std::string> only_in(const FileKeys& one, const FileKeys& other) {
  for (const std::string& key : one.every)
    if (!other.some.contains(key)) return key;
  return std::nullopt;
}

}  // namespace

void refuse_two_data_sets(const std::vector<DataStats>& by_file, const std::vector<FileSummary>& files) {
  std::optional<size_t> first;
  std::optional<FileKeys> of_first;
  for (size_t file = 0; file < files.size(); file++) {
    if (by_file[file].records() == 0 || by_file[file].type() != MessageType::example) continue;
    const FileKeys keys(by_file[file]);
    if (!first) {
      first = file;
      of_first = keys;
    }
    const auto only_first = only_in(*of_first, keys), only_this = only_in(keys, *of_first);
    if (!only_first || !only_this) continue;
    throw Error(
        Category::bad_pipeline,
        fmt::format("these files hold different data: every record of {} has {} and none has {}, and in {} it is "
                    "the other way round; infer a pipeline for each data set",
                    files[*first].file, text_literal(*only_first), text_literal(*only_this), files[file].file));
  }
}

std::string infer_pipeline(const DataStats& stats, const std::vector<FileSummary>& files) {
  uint64_t payload_bytes = 0, regions = 0;
  for (const FileSummary& file : files) {
    payload_bytes += file.payload_bytes;
    regions += file.damage.size();
  }
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "# Inferred by `feedline inspect --pipeline` from {}, {}, in {}.\n",
                 format_count(stats.records(), "record"), format_byte_size(payload_bytes),
                 format_count(files.size(), "file"));

  std::string lines;
  TextOutputs outputs;
  bool raw = true;
  if (stats.type() == MessageType::example) {
    size_t number = 0;
    for (const auto& [key, of_key] : stats.features()) {
      const auto [feature, left_out] = describe_feature(key, of_key, stats.records());
      lines += feature ? text_feature(*feature, number) : left_out;
      if (feature) outputs.add(*feature, number);
      raw = raw && !feature;
      number++;
    }
  }
  fmt::format_to(out, "source {{\n");
  std::vector<std::string> opened;
  for (const FileSummary& file : files)
    if (file.opened()) opened.push_back(file.file);
  for (const std::string& pattern : shard_patterns(opened)) fmt::format_to(out, "  files: {}\n", text_literal(pattern));
  if (raw) {
    fmt::format_to(out, "  record_type: RAW  # {}: each record is delivered as its bytes, `record`\n",
                   stats.type() == MessageType::example ? "no feature has values"
                                                        : fmt::format("message: {}", name(stats.type())));
  }
  fmt::format_to(out, "}}\n{}{}", lines, text_batch(stats.records(), payload_bytes, outputs.made_bytes()));
  text += text_errors(regions, raw ? 0 : stats.unparsed(), outputs.unreadable());
  if (outputs.made())
    text += outputs.text();
  else if (!raw)
    text += "# No output is named, so that every feature is delivered as it is.\n";
  return text;
}

}  // namespace feedline::cli
