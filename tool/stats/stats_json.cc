#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tool/stats/collect_stats.h"
#include "tool/stats/training_advice.h"

namespace feedline::tool {
namespace {

constexpr double quantiles[] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
constexpr size_t histogram_bins = 32;

/// Numbers of one type with their distribution, as JSON.
class Numbers {
 public:
  explicit Numbers(const ValueStats& stats)
      : stats_(stats), integers_(stats.form() != ValueStats::Form::floats), cells_(stats.cells().cells()) {
    for (const ValueCells::Cell& cell : cells_) counted_ += cell.count;
  }

  Json json() const {
    const Moments& moments = stats_.moments();
    Json json;
    json["count"] = moments.count + stats_.nans() + stats_.infinities();
    json["nan"] = stats_.nans();
    json["infinite"] = stats_.infinities();
    json["zeros"] = moments.zeros;
    for (const char* key : {"min", "max", "mean", "std", "distinct", "quantiles", "percentiles", "histogram", "values"})
      json[key] = nullptr;
    json["counted"] = counted_;
    json["relative_error"] = stats_.cells().relative_error();
    if (moments.count == 0) return json;
    json["min"] = integers_ ? Json(stats_.least_integer()) : Json(moments.least);
    json["max"] = integers_ ? Json(stats_.most_integer()) : Json(moments.most);
    if (const double mean = moments.mean(); std::isfinite(mean)) json["mean"] = mean;
    if (const double deviation = moments.deviation(); std::isfinite(deviation)) json["std"] = deviation;
    // Of long rows only some values are counted by value, and perhaps none of these is finite.
    if (counted_ == 0) return json;
    json["quantiles"] = quantiles_json();
    json["percentiles"] = Json::array();
    for (int percent = 1; percent < 100; percent++) json["percentiles"].push_back(json_of(cell_at(percent / 100.0)));
    json["histogram"] = histogram_json();
    const bool all = counted_ == moments.count && stats_.cells().exact();
    if (!all) return json;
    json["distinct"] = cells_.size();
    json["values"] = Json::array();
    for (const ValueCells::Cell& cell : cells_) json["values"].push_back(Json::array({json_of(cell), cell.count}));
    return json;
  }

 private:
  Json json_of(const ValueCells::Cell& cell) const {
    if (integers_) return std::clamp(cell.integer, stats_.least_integer(), stats_.most_integer());
    return number_of(cell);
  }
  double number_of(const ValueCells::Cell& cell) const {
    const double number = integers_ ? static_cast<double>(cell.integer) : cell.number;
    return std::clamp(number, stats_.moments().least, stats_.moments().most);
  }

  /// Returns the cell of the value with rank ceil(q * n) among the n counted values, as np.quantile does with
  /// method="inverted_cdf". Precondition: a value was counted.
  const ValueCells::Cell& cell_at(double q) const {
    const auto rank = static_cast<uint64_t>(std::ceil(q * static_cast<double>(counted_)));
    uint64_t seen = 0;
    for (const ValueCells::Cell& cell : cells_)
      if ((seen += cell.count) >= rank) return cell;
    return cells_.back();
  }

  Json quantiles_json() const {
    Json json;
    for (const double q : quantiles) json[fmt::format("{}", q)] = json_of(cell_at(q));
    return json;
  }

  /// Returns bins of equal width, except that the first and the last bin reach to the extremes. So a few outliers do
  /// not squeeze all other values into one bin.
  Json histogram_json() const {
    const double least = stats_.moments().least, most = stats_.moments().most;
    const double low = number_of(cell_at(0.01)), high = number_of(cell_at(0.99)), spread = high - low;
    const double begin = spread > 0 ? std::max(least, low - spread / 2) : least;
    const double end = spread > 0 ? std::min(most, high + spread / 2) : most;
    std::vector<double> edges;
    for (size_t i = 0; i <= histogram_bins; i++)
      edges.push_back(begin + (end - begin) * static_cast<double>(i) / static_cast<double>(histogram_bins));
    if (!(edges[1] > edges[0])) edges = {least, most};
    edges.front() = least;
    edges.back() = most;
    std::vector<uint64_t> counts(edges.size() - 1);
    for (const ValueCells::Cell& cell : cells_) {
      const auto next = std::upper_bound(edges.begin() + 1, edges.end() - 1, number_of(cell));
      counts[static_cast<size_t>(next - edges.begin()) - 1] += cell.count;
    }
    return {{"edges", edges}, {"counts", counts}};
  }

  const ValueStats& stats_;
  const bool integers_;
  const std::vector<ValueCells::Cell> cells_;
  uint64_t counted_ = 0;
};

/// Returns the features that an output is made of; an empty list if they are not known.
std::vector<std::string> features_of(const OutputStats& output, const CollectedStats& stats) {
  const auto found = stats.features.find(output.element().name);
  return found == stats.features.end() ? std::vector<std::string>() : found->second;
}

/// Returns the names of an output's parts; an empty list if it has only one part.
std::vector<std::string> part_names(const OutputStats& output, const CollectedStats& stats) {
  auto features = features_of(output, stats);
  if (features.size() > 1) return features;
  if (output.parts().size() == 3) return {"red", "green", "blue"};
  return {};
}

/// Returns in how many samples a feature is missing; null if the number is not known. If a random sample was taken,
/// missing values were counted in all records that were read for the steps of this sample. These may be a few more
/// records than samples, so the count is scaled to the number of samples.
Json missing_json(const std::string& feature, const CollectedStats& stats) {
  const auto missing = stats.missing.find(feature);
  if (missing == stats.missing.end()) return stats.missing_of > 0 ? Json(0) : Json();
  const double share =
      static_cast<double>(stats.samples) / static_cast<double>(std::max<uint64_t>(1, stats.missing_of));
  return static_cast<uint64_t>(std::llround(static_cast<double>(missing->second) * share));
}

Json texts_json(const TextCounts& texts) {
  if (!texts.counted()) return nullptr;
  Json json = Json::array();
  for (const auto& [text, count] : texts.counts()) json.push_back(Json::array({text_json(text), count}));
  return json;
}

Json pairs_json(const auto& pairs) {
  Json json = Json::array();
  for (const auto& [label, number] : pairs) json.push_back(Json::array({label, number}));
  return json;
}

Json output_json(const OutputStats& output, const Pipeline& pipeline, const CollectedStats& stats) {
  const ElementSpec& element = output.element();
  Json json;
  json["name"] = element.name;
  json["dtype"] = name(element.dtype);
  json["shape"] = std::vector<int64_t>(output.shape().begin(), output.shape().end());
  json["ragged"] = output.ragged();
  json["rows"] = output.rows();
  if (output.is_bytes()) {
    json["sizes"] = Numbers(output.sizes()).json();
    json["texts"] = texts_json(output.texts());
  } else {
    ValueStats all = output.parts().front();
    for (size_t part = 1; part < output.parts().size(); part++) all.merge(output.parts()[part]);
    json["numbers"] = Numbers(all).json();
    if (const auto names = part_names(output, stats); !names.empty()) {
      json["parts"] = Json::array();
      for (size_t part = 0; part < names.size(); part++) {
        Json of_part = {{"name", names[part]}};
        of_part.update(Numbers(output.parts()[part]).json());
        if (features_of(output, stats).size() > 1) of_part["missing"] = missing_json(names[part], stats);
        json["parts"].push_back(std::move(of_part));
      }
    }
  }
  if (output.has_classes())
    json["classes"] = output.classes().moments().count > 0 ? Numbers(output.classes()).json()["values"] : Json::array();
  if (output.ragged()) json["lengths"] = Numbers(output.lengths()).json();
  if (output.has_step_lengths()) json["step_lengths"] = Numbers(output.step_lengths()).json();
  const auto features = features_of(output, stats);
  json["missing"] = output.ragged()        ? Json(output.lengths().moments().zeros)
                    : features.size() == 1 ? missing_json(features[0], stats)
                                           : Json();
  const auto block = normalize_block(output, pipeline);
  json["normalize"] = block ? Json(*block) : Json();
  const auto labels = labels_of(output);
  uint64_t labelled = 0;
  for (const auto& [label, count] : labels) labelled += count;
  json["labelled"] = labels.empty() ? Json() : Json(labelled);
  json["labels"] = labels.empty() ? Json() : pairs_json(labels);
  json["class_weights"] = labels.empty() ? Json() : pairs_json(class_weights(labels));
  return json;
}

}  // namespace

Json stats_json(const CollectedStats& stats, const Pipeline& pipeline, const std::optional<SampleSize>& sample) {
  Json json;
  json["samples"] = stats.samples;
  json["samples_of_data"] = stats.samples_of_data < 0 ? Json() : Json(stats.samples_of_data);
  json["records"] = sample ? Json(sample->text) : Json();
  json["bad_records"] = stats.bad_records;
  json["bad_records_of_data"] = sample ? Json(stats.bad_records_of_data) : Json();
  json["outputs"] = Json::array();
  for (const OutputStats& output : stats.outputs) json["outputs"].push_back(output_json(output, pipeline, stats));
  return json;
}

}  // namespace feedline::tool
