// Words which names there are, for a message about a name that is missing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace feedline::flow {

/// Returns text such as "; did you mean 'score'? There is: board score", for a message that says that `wanted` is not
/// among `names`. If there are more than 10 names, it lists only the nearest ones.
std::string names_instead(std::string_view wanted, std::vector<std::string> names);

}  // namespace feedline::flow
