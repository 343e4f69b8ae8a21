// Patterns with wildcards, which match alike in every program.
#pragma once

namespace feedline::io {

/// Returns whether `text` matches the pattern, by the rules and the flags of fnmatch(3), with characters of UTF-8
/// whatever locale the program has set: "?" is one character. Texts that are not UTF-8 are matched byte by byte.
bool matches(const char* pattern, const char* text, int flags) noexcept;

}  // namespace feedline::io
