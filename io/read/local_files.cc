#include <dirent.h>
#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/absolute_path.h"
#include "base/did_you_mean.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "io/read/matches.h"
#include "io/read/source.h"

namespace feedline::io {
namespace {

namespace fs = std::filesystem;

using ListOp = HookedCall<"list_files", EACCES>;
using TypeOp = HookedCall<"list_files: type", EIO>;

bool has_magic(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

// Returns the pattern that matches only the text itself: for a[1]* it is a[[]1][*].
std::string as_pattern(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool special = c == '*' || c == '?' || c == '[' || c == '\\';
    if (special) result += '[';
    if (c == '\\') result += c;  // in brackets, too, a \ must be doubled to mean itself
    result += c;
    if (special) result += ']';
  }
  return result;
}

// Returns the path without "." and doubled slashes. Removes "..", too, if the shorter path names the same folder. The
// shorter path may name a different folder: if "a" is a symbolic link, "a/.." need not be the folder ".".
fs::path tidy(const fs::path& path) {
  const fs::path plain = path.lexically_normal();
  const bool climbs = std::find(path.begin(), path.end(), "..") != path.end();
  std::error_code error;
  return !climbs || fs::equivalent(path.parent_path(), plain.parent_path(), error) ? plain : path;
}

// A pattern in two parts. The part `folder` is taken literally, whatever characters are in it.
struct Split {
  fs::path folder;  // absolute
  fs::path rest;    // from the first component with a wildcard on; without wildcards, the file's name
};

Split split(const std::string& folder, const fs::path& pattern) {
  // Throws an Error that names the pattern if a working directory is needed and does not exist.
  if (folder.empty()) absolute_path(pattern);
  Split parts{pattern.is_absolute() ? fs::path("/") : absolute_path(folder), {}};
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

[[noreturn]] void cannot_list(const std::string& what, int error) {
  throw Error(Category::io_error, fmt::format("cannot list '{}': {}", what, std::generic_category().message(error)));
}

// Returns the end of a message about a path that does not exist: which folder of the path is missing, and which name
// that exists there is similar to the missing one.
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

// If the user seems to have meant the pattern in a way that is not supported here, for example as a URL, returns the
// end of a message that says so. Otherwise returns an empty string. `path` is the path that the pattern stands for.
std::string other_meaning(const std::string& pattern, const fs::path& path) {
  if (pattern.starts_with("file://")) return "; write only the path, without 'file://'";
  if (const size_t scheme = pattern.find("://"); scheme != std::string::npos) {
    std::string others;
    for (const std::string& known : schemes()) others += fmt::format(" and files of {}://", known);
    return fmt::format(
        "; files of '{}' cannot be read, only local files{}; mount or copy the files, and write their local path",
        pattern.substr(0, scheme + 3), others);
  }
  std::error_code error;
  for (fs::path folder = path.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (has_magic(folder.string()) && fs::is_directory(folder, error))
      return fmt::format("; the folder '{}' exists, but * ? [...] are wildcards in a pattern; write '{}'",
                         folder.string(),
                         (fs::path(as_pattern(folder.string())) / path.lexically_relative(folder)).string());
  if (pattern.starts_with('~') || pattern.find('$') != std::string::npos)
    return "; '~' and variables are not expanded; write the whole path";
  return {};
}

// Returns the type of the file or folder that the path names, after following links. Throws Error io_error if the
// system does not report the type: the path could name data, which must not be left out silently.
fs::file_type type_of(const fs::path& path) {
  std::error_code error(injected<TypeOp>(), std::generic_category());
  const fs::file_type type = error ? fs::file_type::none : fs::status(path, error).type();
  if (type == fs::file_type::none) cannot_list(path.string(), error.value());
  return type;
}

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { closedir(folder); }
};

// Adds the files under `folder` that match the components of the pattern from `at` on.
void expand(const fs::path& folder, fs::path::const_iterator at, const fs::path::const_iterator& end,
            std::vector<std::string>& files) {
  const std::string component = at->string();
  const bool last = std::next(at) == end;
  if (!has_magic(component)) {
    const fs::path path = folder / component;
    if (!last) return expand(path, std::next(at), end, files);
    const fs::file_type type = type_of(path);
    if (type != fs::file_type::not_found && type != fs::file_type::directory) files.push_back(path.string());
    return;
  }
  // std::filesystem makes a path of each entry, which takes several times as long as reading and matching its name.
  int failure = injected<ListOp>();
  const std::unique_ptr<DIR, CloseFolder> entries(failure ? nullptr : opendir(folder.c_str()));
  if (!failure && !entries) failure = errno;
  if (failure == ENOENT || failure == ENOTDIR) return;
  if (failure) cannot_list(folder.string(), failure);
  const std::string prefix = (folder / "").string();
  const auto next = [&] {
    errno = 0;
    return readdir(entries.get());
  };
  while (const dirent* entry = next()) {
    const std::string_view name = entry->d_name;
    if (!matches(component.c_str(), entry->d_name, FNM_PERIOD) || name == "." || name == "..") continue;
    std::string path = prefix + entry->d_name;
    // Most file systems report the type with the name. Otherwise type_of() finds it out by one more system call.
    const bool unknown = entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN;
    const bool is_folder = unknown ? type_of(path) == fs::file_type::directory : entry->d_type == DT_DIR;
    if (!last && is_folder) expand(path, std::next(at), end, files);
    if (last && !is_folder) files.push_back(std::move(path));
  }
  if (errno != 0) cannot_list(folder.string(), errno);
}

class LocalFiles final : public Source {
 public:
  std::string absolute(const std::string& folder, const std::string& pattern) const override {
    const Split parts = split(folder, pattern);
    return (fs::path(as_pattern(parts.folder.string())) / parts.rest).string();
  }

  Listing list(const std::string& folder, const std::string& pattern) const override {
    const Split parts = split(folder, pattern);
    const fs::path path = parts.folder / parts.rest;
    Listing listing{.files = {}, .literal = false, .name = path.string(), .instead = {}};
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status))
      throw Error(Category::bad_pipeline,
                  fmt::format("'{}' is a folder; name the files in it: '{}'", path.string(), (path / "*").string()));
    if (fs::exists(status)) {
      listing.literal = true;
      listing.files.push_back(path.string());
    } else if (has_magic(parts.rest.string())) {
      expand(parts.folder, parts.rest.begin(), parts.rest.end(), listing.files);
    } else if (status.type() == fs::file_type::none) {
      cannot_list(path.string(), error.value());
    }
    if (listing.files.empty()) listing.instead = other_meaning(pattern, path);
    if (listing.files.empty() && listing.instead.empty()) listing.instead = what_is_there(path);
    return listing;
  }

  FileId stat(const std::string& uri) const override { return stat_file(uri); }

  std::shared_ptr<const SourceFile> open(const std::string& uri) const override {
    return std::make_shared<const InputFile>(uri);
  }

  std::unique_ptr<ReadBackend> make_read_backend(std::vector<FileId> files, const BackendOptions& options,
                                                 ReadDone done) const override {
    return io::make_read_backend(std::move(files), options, std::move(done));
  }
};

}  // namespace

const Source& local_files() {
  static const LocalFiles files;
  return files;
}

}  // namespace feedline::io
