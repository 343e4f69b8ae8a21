#include "flowgraph/pipeline/file_list.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "feedline/error.h"
#include "io/index/index_store.h"
#include "io/read/matches.h"

namespace feedline::flow {

std::string some_of(const std::string& first, size_t count) {
  if (count == 1) return fmt::format("'{}' is", first);
  return fmt::format("'{}' and {} other file{} are", first, count - 1, count > 2 ? "s" : "");
}

FileList list_files(const FilePatterns& patterns) {
  FileList list;
  std::unordered_set<std::string> seen;
  std::set<std::string> again;
  const auto list_pattern = [&](const std::string& pattern) {
    try {
      return io::all_files().list(patterns.folder, pattern);
    } catch (const Error& error) {
      throw Error(error.category(), fmt::format("{}.files: {}", patterns.field, error.message()), error.place());
    }
  };
  for (const std::string& pattern : patterns.files) {
    if (pattern.empty() || pattern.find('\0') != std::string::npos)
      throw Error(Category::bad_pipeline,
                  fmt::format("{}.files: '{}' is not a file name, because it is empty or has a NUL character",
                              patterns.field, pattern));
    const bool is_deep = ("/" + pattern + "/").find("/**/") != std::string::npos;
    constexpr std::string_view one_folder =
        "matches one level of folders, as '*' does; write a pattern for each level, such as 'd/*' and 'd/*/*'";
    if (is_deep) list.warnings.push_back(fmt::format("{}.files: '**' in '{}' {}", patterns.field, pattern, one_folder));
    io::Source::Listing found = list_pattern(pattern);
    if (!found.literal) std::erase_if(found.files, [](const std::string& file) { return io::is_byproduct_name(file); });
    if (found.files.empty())
      throw Error(Category::bad_pipeline,
                  fmt::format("{}.files: no file matches '{}'{}{}", patterns.field, found.name, found.instead,
                              is_deep ? fmt::format("; '**' {}", one_folder) : ""));
    std::sort(found.files.begin(), found.files.end());
    for (std::string& file : found.files) {  // one pattern names each file only once
      if (patterns.files.size() == 1 || seen.insert(file).second)
        list.files.push_back(std::move(file));
      else
        again.insert(std::move(file));
    }
  }
  for (const std::string& pattern : patterns.exclude) {
    if (pattern.find('\0') != std::string::npos)
      throw Error(Category::bad_pipeline,
                  fmt::format("{}.exclude: '{}' is not a pattern for files, because it has a NUL character",
                              patterns.field, pattern));
    const bool whole = pattern.find('/') != std::string::npos;
    const std::string wanted = whole ? io::all_files().absolute(patterns.folder, pattern) : pattern;
    const auto excluded = [&](const std::string& file) {
      return io::matches(wanted.c_str(), whole ? file.c_str() : file.c_str() + file.rfind('/') + 1, FNM_PATHNAME);
    };
    std::erase_if(again, excluded);
    if (std::erase_if(list.files, excluded) == 0)
      list.warnings.push_back(
          fmt::format("{}.exclude: no file matches '{}'; correct or remove this pattern", patterns.field, pattern));
  }
  if (list.files.empty())
    throw Error(
        Category::bad_pipeline,
        fmt::format("{}.exclude: its patterns exclude every file; correct or remove one of them", patterns.field));
  if (!again.empty())
    list.warnings.push_back(fmt::format("{}.files: {} named more than once, but fed only once", patterns.field,
                                        some_of(*again.begin(), again.size())));
  return list;
}

}  // namespace feedline::flow
