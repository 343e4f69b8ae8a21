// What feedline guarantees to itself, checked where a broken guarantee would do harm.
//
// The checks stay in release builds. They are made once for a read, a ticket or a tensor, never once for a record.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "feedline/error.h"

namespace feedline {

/// Throws Error internal_error. `what`: which guarantee does not hold, with the numbers.
[[noreturn]] void broken_invariant(const std::string& what);

template <typename... Args>
void check_invariant(bool holds, fmt::format_string<Args...> what, Args&&... args) {
  if (!holds) [[unlikely]]
    broken_invariant(fmt::format(what, std::forward<Args>(args)...));
}

}  // namespace feedline
