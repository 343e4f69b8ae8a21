#include "flowgraph/pipeline/file_list.h"

#include <dirent.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include "base/did_you_mean.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "io/index/index_store.h"

namespace feedline::flow {
namespace {

namespace fs = std::filesystem;

struct ListOp {
  static constexpr const char* name = "list_files";
  static constexpr int error = EACCES;
};

bool has_magic(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

// Escapes wildcards, so that fnmatch takes the text literally.
std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// Returns the path without "." and doubled slashes. Removes "..", too, if the shorter path names the same folder; it
// need not if it passes a link.
fs::path tidy(const fs::path& path) {
  const fs::path plain = path.lexically_normal();
  const bool climbs = std::find(path.begin(), path.end(), "..") != path.end();
  std::error_code error;
  return !climbs || fs::equivalent(path.parent_path(), plain.parent_path(), error) ? plain : path;
}

// A pattern in two parts. The part without wildcards is taken literally, whatever characters are in it.
struct Split {
  fs::path folder;  // absolute
  fs::path rest;    // from the first component with a wildcard on; or the file's name
};

Split split(const fs::path& folder, const fs::path& pattern) {
  Split parts{pattern.is_absolute() ? fs::path("/") : folder, {}};
  const fs::path relative = pattern.relative_path();
  for (auto it = relative.begin(); it != relative.end(); ++it) {
    const bool last = std::next(it) == relative.end();
    if (parts.rest.empty() && !last && !has_magic(it->string()))
      parts.folder /= *it;
    else if (*it != ".")
      parts.rest /= *it;
  }
  parts.folder = tidy(parts.folder / "x").parent_path();
  return parts;
}

[[noreturn]] void cannot_list(const FilePatterns& patterns, const std::string& what, int error) {
  throw Error(Category::io_error, fmt::format("{}.files: cannot list '{}': {}", patterns.field, what,
                                              std::generic_category().message(error)));
}

// Returns what the user may have meant: how much of the path exists, and a name there that is like the wanted one.
std::string what_is_there(const fs::path& pattern) {
  fs::path folder = pattern.parent_path();
  std::string wanted = pattern.filename().string();
  std::error_code error;
  while (folder.has_relative_path() && !has_magic(folder.string()) && !fs::is_directory(folder, error)) {
    wanted = folder.filename().string();
    folder = folder.parent_path();
  }
  const bool missing = folder != pattern.parent_path();
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

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { closedir(folder); }
};

// Adds the files under `folder` that match the components of the pattern from `at` on.
void expand(const FilePatterns& patterns, const fs::path& folder, fs::path::const_iterator at,
            const fs::path::const_iterator& end, std::vector<std::string>& files) {
  const std::string component = at->string();
  const bool last = std::next(at) == end;
  std::error_code error;
  if (!has_magic(component)) {
    const fs::path path = folder / component;
    if (!last) return expand(patterns, path, std::next(at), end, files);
    if (fs::exists(path, error) && !fs::is_directory(path, error)) files.push_back(path.string());
    return;
  }
  // std::filesystem makes a path of each entry, which takes several times as long as reading and matching its name.
  int failure = injected<ListOp>();
  const std::unique_ptr<DIR, CloseFolder> entries(failure ? nullptr : opendir(folder.c_str()));
  if (!failure && !entries) failure = errno;
  if (failure == ENOENT || failure == ENOTDIR) return;
  if (failure) cannot_list(patterns, folder.string(), failure);
  const std::string prefix = (folder / "").string();
  const auto next = [&] {
    errno = 0;
    return readdir(entries.get());
  };
  while (const dirent* entry = next()) {
    const std::string_view name = entry->d_name;
    if (fnmatch(component.c_str(), entry->d_name, FNM_PERIOD) != 0 || io::is_index_name(name) || name == "." ||
        name == "..")
      continue;
    std::string path = prefix + entry->d_name;
    // The type is mostly known without another system call.
    const bool unknown = entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN;
    const bool is_folder = unknown ? fs::is_directory(path, error) : entry->d_type == DT_DIR;
    if (!last && is_folder) expand(patterns, path, std::next(at), end, files);
    if (last && !is_folder) files.push_back(std::move(path));
  }
  if (errno != 0) cannot_list(patterns, folder.string(), errno);
}

}  // namespace

std::string some_of(const std::string& first, size_t count) {
  if (count == 1) return fmt::format("'{}' is", first);
  return fmt::format("'{}' and {} other file{} are", first, count - 1, count > 2 ? "s" : "");
}

FileList list_files(const FilePatterns& patterns) {
  const fs::path folder = patterns.folder.empty() ? fs::current_path() : fs::absolute(patterns.folder);
  FileList list;
  std::unordered_set<std::string> seen;
  std::set<std::string> again;
  for (const std::string& pattern : patterns.files) {
    if (pattern.empty() || pattern.find('\0') != std::string::npos)
      throw Error(Category::bad_pipeline, fmt::format("{}.files: '{}' is not a file name", patterns.field, pattern));
    const Split parts = split(folder, pattern);
    const fs::path path = parts.folder / parts.rest;
    std::vector<std::string> files;
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status))
      throw Error(Category::bad_pipeline, fmt::format("{}.files: '{}' is a folder; name the files in it: '{}'",
                                                      patterns.field, path.string(), (path / "*").string()));
    if (fs::exists(status))
      files.push_back(path.string());
    else if (has_magic(parts.rest.string()))
      expand(patterns, parts.folder, parts.rest.begin(), parts.rest.end(), files);
    else if (status.type() == fs::file_type::none)
      cannot_list(patterns, path.string(), error.value());
    if (files.empty())
      throw Error(Category::bad_pipeline,
                  fmt::format("{}.files: no file matches '{}'{}", patterns.field, path.string(), what_is_there(path)));
    std::sort(files.begin(), files.end());
    for (std::string& file : files) {  // one pattern names each file only once
      if (patterns.files.size() == 1 || seen.insert(file).second)
        list.files.push_back(std::move(file));
      else
        again.insert(std::move(file));
    }
  }
  for (const std::string& pattern : patterns.exclude) {
    const bool whole = pattern.find('/') != std::string::npos;
    const Split parts = split(folder, pattern);
    const std::string wanted = whole ? (fs::path(escaped(parts.folder.string())) / parts.rest).string() : pattern;
    const auto excluded = [&](const std::string& file) {
      return fnmatch(wanted.c_str(), whole ? file.c_str() : file.c_str() + file.rfind('/') + 1, FNM_PATHNAME) == 0;
    };
    std::erase_if(again, excluded);
    if (std::erase_if(list.files, excluded) == 0)
      list.warnings.push_back(fmt::format("{}.exclude: no file matches '{}'", patterns.field, pattern));
  }
  if (list.files.empty())
    throw Error(Category::bad_pipeline, fmt::format("{}.exclude: it excludes every file", patterns.field));
  if (!again.empty())
    list.warnings.push_back(fmt::format("{}.files: {} named more than once, and fed once", patterns.field,
                                        some_of(*again.begin(), again.size())));
  return list;
}

}  // namespace feedline::flow
