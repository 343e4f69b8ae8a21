// Feeds a case in every way that must make no difference, and reports what differs.
#pragma once

#include <string>

#include "property/case.h"

namespace feedline::test {

enum class Verdict : int { same = 0, differs = 1, refused = 3 };

/// Feeds the case. `folder` is that of write_data_files(). Appends to `told` what differs, or why the plan refuses the
/// pipeline. Run it in a process of its own, because it does not return if feedline hangs or crashes.
Verdict try_case(const Case& c, const std::string& folder, std::string& told);

/// Makes the indexes of `hidden_damage`, for every stride that cases use.
void make_indexes(const std::string& folder);

}  // namespace feedline::test
