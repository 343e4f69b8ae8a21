#include "base/did_you_mean.h"

#include <algorithm>
#include <vector>

namespace feedline {

size_t edit_distance(std::string_view name, std::string_view other) {
  // Computes the table of the restricted Damerau-Levenshtein distance row by row, and keeps the last three rows.
  std::vector<size_t> before_last(other.size() + 1), last(other.size() + 1), row(other.size() + 1);
  for (size_t j = 0; j <= other.size(); j++) last[j] = j;
  for (size_t i = 1; i <= name.size(); i++) {
    const bool any = name[i - 1] == '*';
    row[0] = last[0] + (any ? 0 : 1);
    for (size_t j = 1; j <= other.size(); j++) {
      if (any) {
        row[j] = std::min(last[j], row[j - 1]);
        continue;
      }
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (name[i - 1] == other[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && name[i - 1] == other[j - 2] && name[i - 2] == other[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[other.size()];
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string best;
  if (name.size() > 200) return best;  // too long to be a mistyped name
  size_t best_distance = name.size() / 3 + 2;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 200) continue;
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::string best = nearest(name, candidates);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

}  // namespace feedline
