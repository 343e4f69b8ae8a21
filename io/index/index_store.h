// Keeps the indexes of data files, so that each index is made only once.
//
// An index lies beside its data file, as .NAME.feedline-index: hidden, so that patterns such as NAME* of other programs
// do not take it for data. If the folder of the data is read-only, it lies in $XDG_CACHE_HOME/feedline or
// ~/.cache/feedline instead. If the user has named a folder, it lies only in that folder. In all these folders except
// that of the data, its name is NAME-HASH.feedline-index, where HASH is a hash of the absolute path of the data.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/index/index_file.h"

namespace feedline::io {

inline constexpr std::string_view index_suffix = ".feedline-index";

/// Returns whether a file of this name is an index, or a temporary file that is about to become an index. A name need
/// not begin with a dot, because feedline 0.1 gave indexes beside the data names without it.
bool is_index_name(std::string_view path);

/// Returns whether a file of this name is not data, but something that feedline writes beside data: an index, or a file
/// that is not complete (OutputFile).
bool is_byproduct_name(std::string_view path);

/// Returns the path of place number `number` at which the index of `file` may lie, or an empty string if there are no
/// more places. Place 0 is the preferred place. If `dir` is not empty, the only place is in that folder. If `dir` is
/// empty, there are up to two places: beside the data, if `file` is a path (is_path()), and in the cache folder, if
/// there is one. A name with the scheme of a registered source is not a path but a URI.
std::string index_place(const std::string& file, const std::string& dir, size_t number);

/// Returns the path at which a file that is not an index is kept under `name`: in `dir` or, if `dir` is empty, in the
/// cache folder. Like an index, such a file (the result of a filter, for example) can be made again from the data.
/// Returns an empty string if there is no such folder.
std::string cache_place(const std::string& name, const std::string& dir);

/// Removes temporary files of indexes that killed processes have left. Looks for them in the folders of the preferred
/// places of the indexes of `files`.
void remove_unfinished_indexes(const std::vector<std::string>& files, const std::string& dir);

/// The result of find_index().
struct KeptIndex {
  std::optional<FileIndex> index;
  std::string path;  // where the index lies
  /// A text for people that says what was found at each place that had no valid index. If there is an index, these are
  /// the places that were tried before it.
  std::string why;
  bool refused = false;  // whether one of these places had an index that is not valid
};
/// Reads the indexes at all places, in order, until it finds a valid one of `data`. Does not throw.
KeptIndex find_index(const FileId& data, const CountOptions& options, const std::string& dir);

/// Waits, at most 20 ms, until the clock of file systems has left the tick in which the file was last written. After
/// that, a further write gives the file a different mtime, which shows that the index is out of date. Call this
/// function before counting a file whose index is to be kept.
void let_mtime_settle(const FileId& data);

/// Writes the index to the first place that accepts it, makes the folder if it does not exist, and returns the path.
/// `data` is the file as it was before it was counted, and `now` the file as it is now. Throws Error io_error if the
/// file has changed in between, or if no place accepts the index. In the second case, the message is that of the first
/// place.
std::string keep_index(const FileIndex& index, const FileId& data, const FileId& now, const CountOptions& options,
                       const std::string& dir);

}  // namespace feedline::io
