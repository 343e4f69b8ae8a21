// What takes the place of a comparison while move_bounds.py looks for bounds that no test watches.
#pragma once

#if __cplusplus >= 202002L  // so that Meson can try the compiler with this header, too
#include <array>
#include <atomic>
#include <compare>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wtype-limits"

namespace feedline::mutant {

// 4 * the number of a comparison + how it is changed; 0: none is.
inline const int chosen = std::getenv("MUTANT") ? std::atoi(std::getenv("MUTANT")) : 0;

// The comparisons that a program has made. They are written to the file MUTANTS_SEEN, one number a line.
struct Seen {
  std::array<std::atomic<bool>, 10000> by_number{};

  ~Seen() {
    const char* path = std::getenv("MUTANTS_SEEN");
    std::FILE* file = path ? std::fopen(path, "a") : nullptr;
    if (!file) return;
    for (std::size_t number = 0; number < by_number.size(); ++number) {
      if (by_number[number]) std::fprintf(file, "%zu\n", number);
    }
    std::fclose(file);
  }
};
inline Seen seen;

// Returns whether a is b's neighbour: above b if `above`, otherwise below.
template <class A, class B>
constexpr bool next_to(const A& a, const B& b, bool above) {
  if constexpr (requires { a - b; })
    return above ? a > b && a - b == 1 : b > a && b - a == 1;
  else
    return false;
}

enum class Compare { less, less_equal, greater, greater_equal };

// `a compare b`, or what is made of it: 0: also, or no longer, if both are equal; 1: the bound lies one farther in the
// other direction; 2: never; 3: always.
template <int number, Compare compare, class A, class B>
constexpr bool is(const A& a, const B& b) {
  constexpr bool less = compare == Compare::less || compare == Compare::less_equal;
  constexpr bool strict = compare == Compare::less || compare == Compare::greater;
  const bool beyond = less ? a < b : a > b;
  const bool right = strict ? beyond : less ? a <= b : a >= b;
  if (std::is_constant_evaluated()) return right;
  seen.by_number[number].store(true, std::memory_order_relaxed);
  if (chosen / 4 != number) return right;
  switch (chosen % 4) {
    case 0:
      return strict ? (less ? a <= b : a >= b) : beyond;
    case 1:
      return strict ? beyond && !next_to(a, b, !less) : right || next_to(a, b, less);
    case 2:
      return false;
    default:
      return true;
  }
}

}  // namespace feedline::mutant
#endif
