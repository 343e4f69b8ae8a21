// Sources of data files: the local file system, and stores whose files have names such as "s3://bucket/part-000".
// feedline accesses data files only through a Source, whether it lists, counts, indexes or feeds them, or looks
// something up in them. The indexes and states that feedline stores are local files for every source.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// Access to data files. Thread-safe. The functions may block. They throw Error io_error, which says what the source
/// has refused.
class Source {
 public:
  virtual ~Source() = default;

  /// Returns an absolute pattern. The result is `pattern` itself if that is absolute, and otherwise `pattern` below
  /// `folder` or, if `folder` is empty, below the working directory. In the result, each wildcard of the folder stands
  /// in brackets, such as [*], so that fnmatch(3) takes it literally.
  virtual std::string absolute(const std::string& folder, const std::string& pattern) const = 0;

  /// The files that a pattern names.
  struct Listing {
    std::vector<std::string> files;  // their URIs, each once, in any order
    bool literal = false;            // the pattern is the name of a file, in which wildcards mean themselves
    std::string name;                // the absolute pattern, for messages
    std::string instead;             // if there are no files: the end of a message that helps the user to find them
  };
  /// Lists the files that match a pattern. Wildcards are * ? and [...] within a component of the path, as in
  /// fnmatch(3); they do not match a leading '.'. If the pattern is the name of an existing file, it is taken
  /// literally. Folders are left out. Throws Error bad_pipeline if the pattern is the name of a folder.
  virtual Listing list(const std::string& folder, const std::string& pattern) const = 0;

  /// Returns the size and version of a file. Throws Error io_error if it is not there.
  virtual FileId stat(const std::string& uri) const = 0;

  /// Opens a file for blocking reads.
  virtual std::shared_ptr<const SourceFile> open(const std::string& uri) const = 0;

  /// Makes a backend for asynchronous reads of these files.
  virtual std::unique_ptr<ReadBackend> make_read_backend(std::vector<FileId> files, const BackendOptions& options,
                                                         ReadDone done) const = 0;
};

const Source& local_files();

/// Returns the scheme of a name: "s3" for "s3://bucket/part-000", and "" for a path.
std::string_view scheme_of(std::string_view name) noexcept;

/// Makes `source` the source of all names with this scheme, for as long as the process lives. Thread-safe. Throws Error
/// bad_pipeline if `scheme` is "file", has a source already, or is not a scheme: lower-case letters, digits, + - and .
/// after a letter (RFC 3986, 3.1).
void register_source(const std::string& scheme, std::unique_ptr<const Source> source);

/// Returns whether a name is a path of the local file system: it has no scheme, or a scheme without a registered
/// source. Thread-safe.
bool is_path(std::string_view name);

/// Returns the schemes that have a source, in ascending order. Thread-safe.
std::vector<std::string> schemes();

/// Returns the source that reads every file. It uses the source that is registered for the scheme of a file's name, or
/// else the local file system. A read backend that it makes may have files of several sources.
const Source& all_files();

/// Returns the name of a file in a form that needs no folder. This is `name` itself if `name` is not a path. Otherwise
/// it is an absolute path without . and .., and a relative `name` is taken to be below `folder`. Throws Error io_error
/// if the working directory is needed and cannot be determined.
std::string absolute_name(const std::string& folder, const std::string& name);

}  // namespace feedline::io
