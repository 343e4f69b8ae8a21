// "Did you mean ...?": finds the name that a user who made a typing error probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace feedline {

/// Returns the number of edits that turn `name` into `other`. An edit inserts, deletes or replaces one letter, or swaps
/// two neighbours. A '*' in `name` matches any number of letters at no cost.
size_t edit_distance(std::string_view name, std::string_view other);

/// Returns the candidate with the smallest edit_distance() from `name`, or an empty string if no candidate is close. A
/// candidate is close if its distance is less than name.size() / 3 + 2 and less than its own length, and if neither it
/// nor `name` has more than 200 letters.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// Returns the end of an error message, "; did you mean 'NAME'?", or an empty string if no candidate is close.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace feedline
