// Derives from statistics how a training should normalise an output, and how it should weigh classes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "feedline/pipeline.h"
#include "tool/stats/output_stats.h"

namespace feedline::tool {

/// Returns the `normalize` message that gives each part of the output the mean 0 and the standard deviation 1, as text
/// for the pipeline. It replaces the `normalize` message that the output has, and keeps the scale of that message.
/// Returns nullopt if the output takes no `normalize` (bytes, formulas, class vectors, integers that are not pictures).
/// Returns nullopt, too, if a part has no numbers, is constant, or has a mean or a deviation that float32 cannot hold.
/// `stats` is settled.
std::optional<std::string> normalize_block(const OutputStats& stats, const Pipeline& pipeline);

/// Returns the labels of an output, at least two, in ascending order, each with its count. Labels are the classes of
/// class vectors, or single integers or texts that are counted exactly. If n integers or texts were counted, each label
/// must come at least sqrt(n) times on average. Returns an empty list for all other outputs. `stats` is settled.
std::vector<std::pair<Json, uint64_t>> labels_of(const OutputStats& stats);

/// Returns for each label of labels_of() the weight n / (classes * count), with which all classes weigh the same.
std::vector<std::pair<Json, double>> class_weights(const std::vector<std::pair<Json, uint64_t>>& labels);

/// Returns the bytes as JSON: text as it is, other bytes as {"base64": ...}.
Json text_json(std::string_view bytes);

}  // namespace feedline::tool
