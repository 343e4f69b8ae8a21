// Checks of the library's internal guarantees, at the places where a broken guarantee would do harm.
//
// The checks stay in release builds. They run once for each read, ticket (what is read at a time) or tensor, and never
// for each record.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "feedline/error.h"

namespace feedline {

/// Throws Error internal_error. `what` says which guarantee does not hold, with the numbers.
[[noreturn]] inline void broken_invariant(const std::string& what) {
  throw Error(
      Category::internal_error,
      fmt::format("feedline has a bug and stops before it does harm: {}. Report the bug with the pipeline and the "
                  "output of `feedline check`",
                  what));
}

/// Throws Error internal_error with the message `what`, formatted with `args`, if `holds` is false. The message is
/// formatted only in that case.
template <typename... Args>
void check_invariant(bool holds, fmt::format_string<Args...> what, Args&&... args) {
  if (!holds) [[unlikely]]
    broken_invariant(fmt::format(what, std::forward<Args>(args)...));
}

}  // namespace feedline
