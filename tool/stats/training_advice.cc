#include "tool/stats/training_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "feedline_pipeline.pb.h"
#include "tool/common/json.h"

namespace feedline::tool {
namespace {

/// Returns the `output` message of an output; null for a feature that is delivered without such a message.
const config::Output* output_of(const std::string& name, const Pipeline& pipeline) {
  for (const config::Output& output : pipeline.message().output())
    if (output.name() == name) return &output;
  return nullptr;
}

bool takes_normalize(const OutputStats& stats, const config::Output* said) {
  if (stats.is_bytes()) return false;
  if (!said) return ValueStats::form_of(stats.element().dtype) == ValueStats::Form::floats;
  if (said->has_expression() || said->has_one_hot() || said->feature().starts_with('@')) return false;
  return stats.parts().size() > 1 || said->has_normalize() || said->has_stack() || said->has_decode_image() ||
         ValueStats::form_of(stats.element().dtype) == ValueStats::Form::floats;
}

/// Returns the number for a part. `numbers` is a list of `normalize`: it has one number for each part, one for all
/// parts, or none; then the result is `otherwise`.
double of_part(const auto& numbers, int part, double otherwise) {
  return numbers.empty() ? otherwise : numbers.size() == 1 ? numbers[0] : numbers[part];
}

std::string list_of(const std::vector<double>& numbers) {
  std::string text;
  for (const double number : numbers) text += fmt::format("{}{:.7g}", text.empty() ? "" : ", ", number);
  return numbers.size() == 1 ? text : "[" + text + "]";
}

}  // namespace

std::optional<std::string> normalize_block(const OutputStats& stats, const Pipeline& pipeline) {
  const config::Output* const said = output_of(stats.element().name, pipeline);
  if (!takes_normalize(stats, said)) return std::nullopt;
  const config::Normalize before = said ? said->normalize() : config::Normalize();
  const int parts = static_cast<int>(stats.parts().size());
  const auto fits = [&](const auto& numbers) { return numbers.size() <= 1 || numbers.size() == parts; };
  if (!fits(before.mean()) || !fits(before.std())) return std::nullopt;
  std::vector<double> means, deviations;
  for (int part = 0; part < parts; part++) {
    const Moments& moments = stats.parts()[static_cast<size_t>(part)].moments();
    if (moments.count == 0) return std::nullopt;
    const double deviation = of_part(before.std(), part, 1);
    means.push_back(moments.mean() * deviation + of_part(before.mean(), part, 0));
    deviations.push_back(moments.deviation() * deviation);
    // A pipeline takes only float32, and a deviation above 0.
    if (!std::isfinite(static_cast<float>(means.back())) || !std::isfinite(static_cast<float>(deviations.back())) ||
        !(static_cast<float>(deviations.back()) > 0))
      return std::nullopt;
  }
  const std::string scale = before.has_scale() ? fmt::format("scale: {} ", before.scale()) : std::string();
  return fmt::format("normalize {{ {}mean: {} std: {} }}", scale, list_of(means), list_of(deviations));
}

std::vector<std::pair<Json, uint64_t>> labels_of(const OutputStats& stats) {
  std::vector<std::pair<Json, uint64_t>> labels;
  uint64_t all = 0;
  const auto add_integers = [&](const ValueCells& cells) {
    if (!cells.exact()) return;
    for (const ValueCells::Cell& cell : cells.cells()) labels.emplace_back(cell.integer, cell.count);
  };
  const bool classes = stats.classes().moments().count > 0;
  if (classes)
    add_integers(stats.classes().cells());
  else if (!stats.scalar())
    return {};
  else if (stats.is_bytes())
    for (const auto& [text, count] : stats.texts().counts()) labels.emplace_back(text_json(text), count);
  else if (stats.parts().size() == 1 && ValueStats::form_of(stats.element().dtype) != ValueStats::Form::floats)
    add_integers(stats.parts()[0].cells());
  for (const auto& [label, count] : labels) all += count;
  if (labels.size() < 2 || (!classes && labels.size() * labels.size() > all)) labels.clear();
  return labels;
}

std::vector<std::pair<Json, double>> class_weights(const std::vector<std::pair<Json, uint64_t>>& labels) {
  double all = 0;
  for (const auto& [label, count] : labels) all += static_cast<double>(count);
  std::vector<std::pair<Json, double>> weights;
  for (const auto& [label, count] : labels)
    weights.emplace_back(label, all / (static_cast<double>(labels.size()) * static_cast<double>(count)));
  return weights;
}

Json text_json(std::string_view bytes) { return is_printable(bytes) ? Json(bytes) : Json{{"base64", base64(bytes)}}; }

}  // namespace feedline::tool
