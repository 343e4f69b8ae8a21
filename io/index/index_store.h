// Where the indexes of data files are kept, so that they are made once.
//
// NAME.feedline-index beside the data; in a folder of the user's choice, or, where the data's is read-only, in
// $XDG_CACHE_HOME/feedline or ~/.cache/feedline: there as NAME-HASH.feedline-index, HASH being of the absolute path.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "io/index/index_file.h"

namespace feedline::io {

inline constexpr std::string_view index_suffix = ".feedline-index";

/// Whether a file of this name is an index, or is about to become one.
bool is_index_name(std::string_view path);

/// Where the index of `file` may lie, number 0 being the best place; empty: there are no more. `dir`: there and nowhere
/// else; empty: beside the data, and the cache folder, if there is one.
std::string index_place(const std::string& file, const std::string& dir, size_t number);

/// Where something else that can be made again is kept under `name`: in `dir`, or in the cache folder; empty: nowhere.
std::string cache_place(const std::string& name, const std::string& dir);

struct KeptIndex {
  std::optional<FileIndex> index;
  std::string path;  // where it lies
  /// Without an index: where none was found, and what was found instead. Of places tried before it otherwise.
  std::string why;
  bool refused = false;  // there was one that does not hold
};
/// The first valid index of `data`. Does not throw.
KeptIndex find_index(const FileId& data, const CountOptions& options, const std::string& dir);

/// Call it before counting what is to be kept. Waits, up to 20 ms, until the clock of file systems has left the tick in
/// which the file was last written: so that writing to it again gives it another mtime.
void let_mtime_settle(const FileId& data);

/// Writes the index to the first place that takes it, and makes the folder if need be. Returns where. Throws Error
/// io_error where none does (that of the first place), or when the file is no longer `data`, as it was before counting.
std::string keep_index(const FileIndex& index, const FileId& data, const CountOptions& options, const std::string& dir);

}  // namespace feedline::io
