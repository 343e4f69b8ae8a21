#include "flowgraph/file_list.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <unordered_set>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "flowgraph/nearest.h"

namespace feedline::flow {
namespace {

namespace fs = std::filesystem;

struct ListOp {
  static constexpr const char* name = "list_files";
  static constexpr int error = EACCES;
};

bool has_magic(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

// So that glob takes it literally.
std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// Without "." and doubled slashes; ".." goes, too, where that names the same folder (it need not behind a link).
std::string tidy(const fs::path& path) {
  const fs::path plain = path.lexically_normal();
  const bool climbs = std::find(path.begin(), path.end(), "..") != path.end();
  std::error_code error;
  if (!climbs || fs::equivalent(path.parent_path(), plain.parent_path(), error)) return plain.string();
  return path.string();
}

[[noreturn]] void cannot_list(const FilePatterns& patterns, const std::string& what, int error) {
  throw Error(Category::io_error, fmt::format("{}.files: cannot list '{}': {}", patterns.field, what,
                                              std::generic_category().message(error)));
}

// What the user may have meant: the part of the path that is there, and names like the wanted one in it.
std::string what_is_there(const std::string& pattern) {
  fs::path folder = fs::path(pattern).parent_path();
  std::string wanted = fs::path(pattern).filename().string();
  std::error_code error;
  while (folder.has_relative_path() && !has_magic(folder.string()) && !fs::is_directory(folder, error)) {
    wanted = folder.filename().string();
    folder = folder.parent_path();
  }
  const bool missing = folder != fs::path(pattern).parent_path();
  std::string text = missing ? fmt::format("; there is no folder '{}'", (folder / wanted).string()) : "";
  if (has_magic(folder.string())) return text;
  std::vector<std::string> names;
  constexpr size_t enough = 10000;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator() && names.size() < enough; it.increment(error))
    names.push_back(it->path().filename().string());
  if (names.empty() && !missing) return text + "; the folder is empty";
  const std::string close = nearest(wanted, names);
  if (!close.empty()) text += fmt::format("; there is '{}'", (folder / close).string());
  return text;
}

struct Glob {
  glob_t found{};
  ~Glob() { globfree(&found); }
};

thread_local int glob_error;  // of the folder that glob could not read; it hands on no context
thread_local std::string glob_folder;

// The regular files and such that match, sorted by byte.
std::vector<std::string> expand(const FilePatterns& patterns, const std::string& pattern) {
  Glob matches;
  glob_error = injected<ListOp>();
  glob_folder.clear();
  const auto note = [](const char* folder, int error) {
    // What is not there or no folder does not match, which is no failure.
    if (error == ENOENT || error == ENOTDIR) return 0;
    glob_error = error;
    glob_folder = folder;
    return 1;
  };
  const int result = glob_error ? GLOB_ABORTED : glob(pattern.c_str(), GLOB_NOSORT | GLOB_MARK, note, &matches.found);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
  if (result == GLOB_ABORTED) cannot_list(patterns, glob_folder.empty() ? pattern : glob_folder, glob_error);
  std::vector<std::string> files;
  files.reserve(matches.found.gl_pathc);
  for (size_t i = 0; i < matches.found.gl_pathc; i++) {
    const std::string_view match = matches.found.gl_pathv[i];
    if (!match.ends_with('/')) files.emplace_back(match);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

FileList list_files(const FilePatterns& patterns) {
  const fs::path folder = patterns.folder.empty() ? fs::current_path() : fs::absolute(patterns.folder);
  FileList list;
  std::unordered_set<std::string> seen;
  for (const std::string& pattern : patterns.files) {
    if (pattern.empty()) throw Error(Category::bad_pipeline, fmt::format("{}.files: an empty name", patterns.field));
    const std::string path = tidy(folder / pattern);
    std::vector<std::string> files;
    struct stat status {};
    if (stat(path.c_str(), &status) == 0) {
      if (S_ISDIR(status.st_mode))
        throw Error(Category::bad_pipeline, fmt::format("{}.files: '{}' is a folder; name the files in it: '{}'",
                                                        patterns.field, path, (fs::path(path) / "*").string()));
      files.push_back(path);
    } else if (has_magic(pattern)) {
      files = expand(patterns, tidy(fs::path(escaped(folder.string())) / pattern));
    }
    if (files.empty())
      throw Error(Category::bad_pipeline,
                  fmt::format("{}.files: no file matches '{}'{}", patterns.field, path, what_is_there(path)));
    for (std::string& file : files)
      if (seen.insert(file).second) list.files.push_back(std::move(file));
  }
  for (const std::string& pattern : patterns.exclude) {
    const bool whole = pattern.find('/') != std::string::npos;
    const std::string path = whole ? tidy(fs::path(escaped(folder.string())) / pattern) : pattern;
    const auto excluded = [&](const std::string& file) {
      return fnmatch(path.c_str(), whole ? file.c_str() : file.c_str() + file.rfind('/') + 1, FNM_PATHNAME) == 0;
    };
    if (std::erase_if(list.files, excluded) == 0)
      list.warnings.push_back(fmt::format("{}.exclude: no file matches '{}'", patterns.field, path));
  }
  if (list.files.empty())
    throw Error(Category::bad_pipeline, fmt::format("{}.exclude: it leaves no file", patterns.field));
  return list;
}

}  // namespace feedline::flow
