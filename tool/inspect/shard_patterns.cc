#include "tool/inspect/shard_patterns.h"

#include <algorithm>
#include <map>

#include "base/utf8.h"
#include "feedline/error.h"
#include "flowgraph/pipeline/file_list.h"
#include "io/read/source.h"

namespace feedline::tool {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Cuts the name where digits begin and end: pieces without digits and pieces of digits take turns. The first piece has
/// no digits, and may be empty.
std::vector<std::string> pieces_of(const std::string& name) {
  std::vector<std::string> pieces(1);
  bool digits = false;
  for (const char c : name) {
    if (is_digit(c) != digits) {
      pieces.emplace_back();
      digits = !digits;
    }
    pieces.back() += c;
  }
  return pieces;
}

/// Files of one folder whose names differ only in their numbers.
using Group = std::vector<std::string>;

/// Returns a pattern with a `*` for each number that differs between the names.
std::string pattern_of(const Group& group) {
  const size_t name_at = group.front().rfind('/') + 1;
  std::vector<std::string> pattern = pieces_of(group.front().substr(name_at));
  for (const std::string& path : group) {
    const std::vector<std::string> pieces = pieces_of(path.substr(name_at));
    for (size_t i = 1; i < pieces.size(); i += 2)
      if (pieces[i] != pattern[i]) pattern[i] = "*";
  }
  std::string all = group.front().substr(0, name_at);
  for (const std::string& piece : pattern) all += piece;
  return all;
}

/// Returns whether the pattern matches all files of the group, and nothing else.
bool matches_exactly(const std::string& pattern, const Group& group) {
  Group sorted = group;
  std::sort(sorted.begin(), sorted.end());
  return flow::list_files({.field = "source", .folder = {}, .files = {pattern}, .exclude = {}}).files == sorted;
}

/// Returns the pattern in UTF-8, because the text of a pipeline must be UTF-8. If the pattern is not UTF-8, a `*` takes
/// the place of bytes that are not ASCII. Throws Error bad_pipeline if the new pattern also matches files that are not
/// in the group.
std::string as_text(const std::string& pattern, const Group& group) {
  if (is_utf8(pattern)) return pattern;
  std::string text;
  for (const char c : pattern) {
    const bool ascii = static_cast<unsigned char>(c) < 0x80;
    if (ascii || !text.ends_with('*')) text += ascii ? c : '*';
  }
  if (matches_exactly(text, group)) return text;
  throw Error(Category::bad_pipeline,
              "the name of the file is not UTF-8, so a pipeline cannot name the file, and no pattern matches only this "
              "file; rename the file",
              Place::of_file(group.front()));
}

}  // namespace

std::vector<std::string> shard_patterns(const std::vector<std::string>& files) {
  std::vector<Group> groups;
  std::map<std::string, size_t> group_of;  // by folder and name without numbers
  for (const std::string& file : files) {
    const std::string path = io::absolute_name({}, file);
    const size_t name_at = path.rfind('/') + 1;
    std::vector<std::string> pieces = pieces_of(path.substr(name_at));
    for (size_t i = 1; i < pieces.size(); i += 2) pieces[i] = "/";
    std::string key = path.substr(0, name_at) + "/";
    for (const std::string& piece : pieces) key += piece;
    const auto [at, is_new] = group_of.try_emplace(key, groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(path);
  }
  std::vector<std::string> patterns;
  for (const Group& group : groups) {
    const bool has_wildcards = group.front().find_first_of("*?[") != std::string::npos;
    const std::string pattern = group.size() > 1 && !has_wildcards ? pattern_of(group) : std::string();
    if (!pattern.empty() && matches_exactly(pattern, group))
      patterns.push_back(as_text(pattern, group));
    else
      for (const std::string& file : group) patterns.push_back(as_text(file, {file}));
  }
  return patterns;
}

}  // namespace feedline::tool
