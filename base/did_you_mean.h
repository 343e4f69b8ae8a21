// "Did you mean ...": the name that somebody probably wanted to write.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace feedline::flow {

/// Letters to insert, delete, replace or swap with their neighbour until `name` is `other`. A '*' in `name` stands for
/// any letters.
size_t edit_distance(std::string_view name, std::string_view other);

/// The candidate closest to `name`, or an empty string where none is close.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// "; did you mean 'NAME'?" or nothing.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace feedline::flow
