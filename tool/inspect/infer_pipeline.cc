#include "tool/inspect/infer_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/append.h"
#include "base/byte_size.h"
#include "feedline/error.h"
#include "tool/common/json.h"
#include "tool/common/picture_stats.h"
#include "tool/common/pipeline_text.h"
#include "tool/common/terminal.h"
#include "tool/inspect/shard_patterns.h"

namespace feedline::tool {
namespace {

/// A feature for the text of the pipeline or, if it cannot be fed, a comment line that says why.
struct Described {
  std::optional<TextFeature> feature;
  std::string left_out = {};
};

/// Returns the kind of the feature's values. If they have several kinds, or if there are no values, returns Kind::unset
/// and a comment line that says why the feature is left out.
std::pair<Kind, std::string> only_kind(const std::string& key, const FeatureStats& stats) {
  std::vector<Kind> kinds;
  for (const Kind kind : {Kind::bytes_list, Kind::float_list, Kind::int64_list})
    if (stats.of(kind).records) kinds.push_back(kind);
  if (kinds.empty())
    return {Kind::unset, fmt::format("# feature {} is left out: it has no values in any record\n", text_literal(key))};
  if (kinds.size() == 1) return {kinds.front(), ""};
  std::string found;
  for (const Kind kind : kinds) {
    found += fmt::format("{}{} in {}", found.empty() ? "" : ", ", name(kind),
                         format_count(stats.of(kind).records, "record"));
  }
  return {Kind::unset,
          fmt::format("# feature {} is left out: its values have several kinds: {}\n", text_literal(key), found)};
}

void remark(TextFeature& feature, const std::string& text) {
  feature.remark += (feature.remark.empty() ? "" : "; ") + text;
}

void describe_lengths(TextFeature& feature, const KindStats& values, bool may_be_fixed) {
  if (feature.kind != Kind::bytes_list || values.total == 0) return;
  if (values.length_min == values.length_max && values.length_min > 0 && may_be_fixed)
    feature.length = static_cast<int64_t>(values.length_min);
  else
    remark(feature, fmt::format("{} bytes", format_range(values.length_min, values.length_max)));
}

void describe_missing(TextFeature& feature, uint64_t having, uint64_t records) {
  if (feature.missing)
    remark(feature, fmt::format("in {} of {}", format_count(having), format_count(records, "record")));
}

Described describe_feature(const std::string& key, const FeatureStats& stats, uint64_t records) {
  const auto [kind, left_out] = only_kind(key, stats);
  if (!left_out.empty()) return {{}, left_out};
  const KindStats& values = stats.of(kind);
  const bool fixed = values.count_min == values.count_max && values.count_min > 0;
  TextFeature feature{.key = key, .kind = kind, .variable = !fixed, .missing = values.records < records};
  if (!fixed) remark(feature, fmt::format("{} values", format_range(values.count_min, values.count_max)));
  if (fixed && values.count_min > 1) feature.shape = {static_cast<int64_t>(values.count_min)};
  const bool are_pictures = values.pictures.are_most_of(values.total);
  describe_lengths(feature, values, !(fixed && feature.missing) && !are_pictures);
  if (are_pictures) {
    remark(feature, describe(values.pictures, values.total));
    if (fixed && !feature.missing)
      decode_pictures(feature, values.pictures, values.total, values.count_max);
    else
      remark(feature, "delivered as they are, because records have different numbers of pictures");
  }
  describe_missing(feature, values.records, records);
  return {std::move(feature)};
}

/// Describes a feature list. If all steps have the same number of values, the feature has the shape of a step. If all
/// records also have the list, with the same number of steps, the feature has the shape of all steps of a record.
Described describe_list(const std::string& key, const FeatureListStats& stats, uint64_t records) {
  const auto [kind, left_out] = only_kind(key, stats.values);
  if (!left_out.empty()) return {{}, left_out};
  const KindStats &values = stats.values.of(kind), &steps = stats.steps, &each = stats.each;
  TextFeature feature{.key = key, .kind = kind, .in_list = true, .missing = steps.records < records};
  feature.variable = each.count_min != each.count_max || each.count_min == 0;
  feature.sequence = !feature.variable && (steps.count_min != steps.count_max || feature.missing);
  if (!feature.variable && !feature.sequence) feature.shape = {static_cast<int64_t>(steps.count_min)};
  if (!feature.variable && each.count_min > 1) feature.shape.push_back(static_cast<int64_t>(each.count_min));
  if (feature.variable || feature.sequence)
    remark(feature, fmt::format("{} steps", format_range(steps.count_min, steps.count_max)));
  if (feature.variable)
    remark(feature, fmt::format("{} values in a step", format_range(each.count_min, each.count_max)));
  const bool are_pictures = values.pictures.are_most_of(values.total);
  describe_lengths(feature, values, !are_pictures);
  if (are_pictures) {
    remark(feature, describe(values.pictures, values.total));
    if (!feature.variable && each.count_min == 1) {
      decode_pictures(feature, values.pictures, values.total, steps.count_max);
      if (feature.sequence) feature.max_values = steps.count_max;
    } else {
      remark(feature, "delivered as they are, because pictures are decoded only if each step has exactly one");
    }
  }
  describe_missing(feature, steps.records, records);
  return {std::move(feature)};
}

/// The keys that at least one record of a file has (`some`), and the keys that all its records have (`every`).
struct FileKeys {
  explicit FileKeys(const DataStats& file) {
    const auto add = [&](const std::string& key, uint64_t records) {
      some.insert(key);
      if (records >= file.parsed()) every.insert(key);
    };
    for (const auto& [key, stats] : file.features()) {
      uint64_t records = 0;
      for (const KindStats& kind : stats.kinds) records += kind.records;
      add(key, records);
    }
    for (const auto& [key, stats] : file.feature_lists()) add("feature_lists/" + key, stats.steps.records);
  }
  std::set<std::string> some, every;
};

/// Returns a key that every record of the file `one` has, and no record of the file `other`; nullopt if there is no
/// such key.
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
    if (by_file[file].type() == MessageType::other) continue;
    const FileKeys keys(by_file[file]);
    if (!first) {
      first = file;
      of_first = keys;
    }
    const auto only_first = only_in(*of_first, keys), only_this = only_in(keys, *of_first);
    if (!only_first || !only_this) continue;
    throw Error(
        Category::bad_pipeline,
        fmt::format("the files belong to different data sets: every record of {} has the feature {} and none has {}, "
                    "but in {} every record has only the second of these features; run `feedline inspect --pipeline` "
                    "for each data set separately",
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
  append(text, "# Inferred by `feedline inspect --pipeline` from {}, {}, in {}.\n",
         format_count(stats.records(), "record"), format_byte_size(payload_bytes), format_count(files.size(), "file"));

  std::vector<Described> all;
  const bool sequences = stats.type() == MessageType::sequence_example;
  if (sequences || stats.type() == MessageType::example) {
    const auto lists = sequences ? stats.feature_lists() : std::map<std::string, FeatureListStats>();
    for (const auto& [key, of_key] : stats.features()) {
      Described& described = all.emplace_back(describe_feature(key, of_key, stats.parsed()));
      if (described.feature && lists.contains(key)) described.feature->name = key + " of the context";
    }
    for (const auto& [key, of_key] : lists) all.push_back(describe_list(key, of_key, stats.parsed()));
  }
  std::vector<TextFeature*> features;
  for (Described& described : all) features.push_back(described.feature ? &*described.feature : nullptr);
  name_features(features);
  std::string lines;
  TextOutputs outputs;
  bool raw = true;
  for (const auto& [feature, left_out] : all) {
    lines += feature ? text_feature(*feature) : left_out;
    if (feature) outputs.add(*feature);
    raw = raw && !feature;
  }
  append(text, "source {{\n");
  std::vector<std::string> opened;
  for (const FileSummary& file : files)
    if (file.opened()) opened.push_back(file.file);
  for (const std::string& pattern : shard_patterns(opened)) append(text, "  files: {}\n", text_literal(pattern));
  if (raw) {
    append(text, "  record_type: RAW  # {}, so each record is delivered as bytes in `record`\n",
           stats.type() != MessageType::other ? "no feature has values" : "the records are not recognized as Examples");
  } else if (sequences) {
    append(text, "  record_type: SEQUENCE_EXAMPLE\n");
  }
  uint64_t largest = 0;
  for (const FileSummary& file : files) largest = std::max(largest, file.record_max);
  if (largest > io::default_record_limit)
    append(text, "  record_limit: \"{}\"  # the size of the longest record in bytes\n", largest);
  append(text, "}}\n{}{}", lines, text_batch(stats.records(), payload_bytes, outputs.made_bytes()));
  text += text_errors(regions, raw ? 0 : stats.unparsed(), outputs.unreadable());
  if (outputs.made())
    text += outputs.text();
  else if (!raw)
    text += "# The pipeline names no outputs, so every feature is delivered as it is.\n";
  return text;
}

}  // namespace feedline::tool
