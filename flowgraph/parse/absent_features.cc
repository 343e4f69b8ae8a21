#include "flowgraph/parse/absent_features.h"

#include <fmt/format.h>

#include "flowgraph/parse/names_instead.h"

namespace feedline::flow {

AbsentFeatures::AbsentFeatures(const std::vector<FeatureSpec>& features, const RecordParser& parser)
    : features_(features), parser_(parser) {
  for (size_t f = 0; f < features.size(); f++)
    if (features[f].may_lack()) absent_.push_back(f);
}

void AbsentFeatures::add(const std::vector<bool>& seen, std::span<const io::RecordView> records) {
  any_ = any_ || !records.empty();
  if (absent_.empty()) return;
  std::erase_if(absent_, [&](size_t feature) { return seen[feature]; });
  if (!absent_.empty() && names_.empty() && !records.empty()) names_ = parser_.feature_names(records.front());
}

std::vector<Error> AbsentFeatures::errors(std::string_view which) const {
  std::vector<Error> errors;
  for (size_t f = 0; any_ && f < absent_.size(); f++) {
    const FeatureSpec& feature = features_[absent_[f]];
    errors.emplace_back(Category::missing_feature,
                        fmt::format("no record {} has this feature, so every row {}{}", which,
                                    feature.kind == FeatureKind::fixed ? "has the default_value" : "has no values",
                                    names_instead(feature, names_)),
                        Place{"", -1, -1, feature.name});
  }
  return errors;
}

}  // namespace feedline::flow
