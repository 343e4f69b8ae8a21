// Patterns with wildcards, which match the same texts in every program.
#pragma once

namespace feedline::io {

/// Returns whether `text` matches `pattern`, by the rules of fnmatch(3) with its `flags`. Characters are those of
/// UTF-8, whatever locale the program has set: "?" matches one character. Texts that are not UTF-8 are matched byte by
/// byte.
bool matches(const char* pattern, const char* text, int flags) noexcept;

}  // namespace feedline::io
