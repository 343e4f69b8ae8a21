// Lists the features that a record has, for a message about one that it lacks.
#pragma once

#include <string>
#include <vector>

#include "flowgraph/pipeline/spec.h"

namespace feedline::flow {

/// Returns text such as "; did you mean 'score'? Features found: board score", to append to a message that says that
/// the feature is not among `names`. The names have the form of FeatureSpec::place(). If there are more than 10 names,
/// lists the 10 nearest ones.
std::string names_instead(const FeatureSpec& feature, std::vector<std::string> names);

}  // namespace feedline::flow
