// Where data files lie: in the local file system, or in a store whose files have names such as "s3://bucket/part-000".
// Listing, counting, indexing, feeding and looking up access data files only through a Source. The indexes and states
// that feedline stores are local files for every source.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// Access to data files. Thread-safe. The functions may block, and throw Error io_error, which says what the source has
/// refused.
class Source {
 public:
  virtual ~Source() = default;

  /// Returns the pattern as one that needs no folder: `pattern` itself if it is absolute, otherwise `pattern` below
  /// `folder` (if that is empty, below the working directory). In the result, wildcards of the folder are escaped by \,
  /// so that fnmatch(3) takes them literally.
  virtual std::string absolute(const std::string& folder, const std::string& pattern) const = 0;

  /// What a pattern names.
  struct Listing {
    std::vector<std::string> files;  // their URIs, each once, in any order
    bool literal = false;            // the pattern is the name of a file, in which wildcards mean themselves
    std::string name;                // the absolute pattern, for messages
    std::string instead;             // if there are no files: what is there instead, to be appended to a message
  };
  /// Lists the files that match a pattern. Wildcards are * ? and [...] within a component of the path, as in
  /// fnmatch(3); they do not match a leading '.'. A file that exists is taken literally. Folders are left out. Throws
  /// Error bad_pipeline if the pattern is the name of a folder.
  virtual Listing list(const std::string& folder, const std::string& pattern) const = 0;

  /// Returns the size and version of a file. Throws Error io_error if it is not there.
  virtual FileId stat(const std::string& uri) const = 0;

  /// Opens a file for blocking reads.
  virtual std::shared_ptr<const SourceFile> open(const std::string& uri) const = 0;

  /// Makes a backend for asynchronous reads of these files.
  virtual std::unique_ptr<ReadBackend> make_read_backend(std::vector<FileId> files, const BackendOptions& options,
                                                         ReadDone done) const = 0;
};

/// Returns the local file system.
const Source& local_files();

/// Returns the scheme of a name such as "s3://bucket/part-000", here "s3"; "" for a path.
std::string_view scheme_of(std::string_view name) noexcept;

/// Makes `source` the one of all names with this scheme, for as long as the process lives. Thread-safe. Throws Error
/// bad_pipeline if `scheme` is not one (lower-case letters, digits, + - and . after a letter: RFC 3986, 3.1), is "file",
/// or has a source already.
void register_source(const std::string& scheme, std::unique_ptr<const Source> source);

/// Returns whether a name is a path of the local file system: it has no scheme, or one that no source is registered for.
/// Thread-safe.
bool is_path(std::string_view name);

/// Returns the schemes that have a source, in ascending order. Thread-safe.
std::vector<std::string> schemes();

/// Returns what reads every file: by the source that its scheme is registered with, or from the local file system. A
/// read backend of it may have files of several sources.
const Source& all_files();

/// Returns the name of a file as one that needs no folder: itself if it is no path, otherwise an absolute path without .
/// and .., below `folder` if it is relative. Throws Error io_error as absolute_path() does.
std::string absolute_name(const std::string& folder, const std::string& name);

}  // namespace feedline::io
