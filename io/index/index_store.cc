#include "io/index/index_store.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>

#include "base/absolute_path.h"
#include "base/audit.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "io/output_file.h"
#include "io/read/source.h"

namespace feedline::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* no_place =
    "there is no folder in which its index can be stored; set index.dir (or --dir of `feedline index`), HOME or "
    "XDG_CACHE_HOME";

using MakeFolderOp = HookedCall<"make_index_folder", EACCES>;

// Returns the folder for caches of feedline, below $XDG_CACHE_HOME or else ~/.cache, or an empty path if there is none.
// The XDG Base Directory Specification says that a relative path is to be ignored.
fs::path cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') return fs::path(cache) / "feedline";
  if (const char* home = std::getenv("HOME"); home && *home == '/') return fs::path(home) / ".cache" / "feedline";
  return {};
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  if (const int failure = injected<MakeFolderOp>())
    error.assign(failure, std::generic_category());
  else
    fs::create_directories(folder, error);
  if (error)
    throw Error(
        Category::io_error,
        fmt::format("the folder for indexes cannot be created: {}; set index.dir (or --dir of `feedline index`) "
                    "to a folder that can be created and written",
                    error.message()),
        Place::of_file(folder.string()));
}

}  // namespace

bool is_index_name(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t at = name.rfind(index_suffix);
  if (at == std::string_view::npos || at == 0) return false;
  const std::string_view rest = name.substr(at + index_suffix.size());
  return rest.empty() || (rest.starts_with('.') && rest.ends_with("part"));  // OutputFile's temporary names
}

bool is_byproduct_name(std::string_view path) { return is_index_name(path) || is_unfinished_name(path); }

std::string index_place(const std::string& file, const std::string& dir, size_t number) {
  const bool local = is_path(file);
  if (dir.empty() && local && number-- == 0) {
    const size_t name = file.rfind('/') + 1;
    return fmt::format("{}.{}{}", file.substr(0, name), file.substr(name), index_suffix);
  }
  const fs::path folder = dir.empty() ? cache_folder() : fs::path(dir);
  if (number > 0 || folder.empty()) return {};
  const fs::path path = local ? absolute_path(file).lexically_normal() : fs::path(file);
  return (folder / fmt::format("{}-{:016x}{}", path.filename().string(), hash64(path.string()), index_suffix)).string();
}

std::string cache_place(const std::string& name, const std::string& dir) {
  const fs::path folder = dir.empty() ? cache_folder() : fs::path(dir);
  return folder.empty() ? std::string() : (folder / name).string();
}

void remove_unfinished_indexes(const std::vector<std::string>& files, const std::string& dir) {
  std::set<std::string> folders;
  for (const std::string& file : files) {
    const std::string place = index_place(file, dir, 0);
    if (!place.empty()) folders.insert(place.substr(0, place.rfind('/') + 1));
  }
  for (const std::string& folder : folders)
    remove_unfinished(folder.empty() ? "." : folder,
                      [](std::string_view name) { return name.ends_with(index_suffix); });
}

KeptIndex find_index(const FileId& data, const CountOptions& options, const std::string& dir) {
  KeptIndex found;
  std::string path;
  for (size_t n = 0; !(path = index_place(data.uri, dir, n)).empty(); n++) {
    IndexFile file = read_index(path, data, options);
    if (file.index) return {.index = std::move(file.index), .path = path, .why = found.why, .refused = found.refused};
    found.refused |= !file.refused.empty();
    if (!found.why.empty()) found.why += "; ";
    found.why += file.refused.empty() ? fmt::format("there is no {}", path) : fmt::format("{} {}", path, file.refused);
  }
  if (found.why.empty()) found.why = no_place;
  return found;
}

void let_mtime_settle(const FileId& data) {
  if (!is_path(data.uri)) return;  // the version of a file in a store is not a time
  for (int i = 0; i < 20; i++) {
    timespec now{};  // by the clock from which the kernel takes the mtime of files
    if (clock_gettime(CLOCK_REALTIME_COARSE, &now) != 0) return;
    const uint64_t ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
    if (data.version < ns) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string keep_index(const FileIndex& index, const FileId& data, const FileId& now, const CountOptions& options,
                       const std::string& dir) {
  if (now.size != data.size || now.version != data.version)
    throw Error(Category::io_error, "was written to while it was counted; count it again when no program writes to it",
                Place::of_file(data.uri));
  std::optional<Error> first;
  std::string path;
  for (size_t n = 0; !(path = index_place(data.uri, dir, n)).empty(); n++) {
    try {
      const fs::path folder = fs::path(path).parent_path();
      if (folder != fs::path(data.uri).parent_path()) make_folder(folder);
      write_index(path, index, data, options);
      return path;
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  throw first ? *first : Error(Category::io_error, no_place, Place::of_file(data.uri));
}

}  // namespace feedline::io
