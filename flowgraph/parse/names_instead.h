// Lists the features that a record has, for a message about one that it lacks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace feedline::flow {

/// Returns text such as "; did you mean 'score'? There are: board score", to append to a message that says that the
/// feature `wanted` is not among `names`. If there are more than 10 names, lists the 10 nearest ones.
std::string names_instead(std::string_view wanted, std::vector<std::string> names);

}  // namespace feedline::flow
