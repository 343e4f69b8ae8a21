// Lists the files that a source's patterns name.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace feedline::flow {

struct FilePatterns {
  std::string field;   // the source in messages, such as "source[1]"
  std::string folder;  // relative patterns are relative to it; empty: the working directory
  std::vector<std::string> files;
  std::vector<std::string> exclude;  // with a '/', for the whole path; without, for the file's name in any folder
};

struct FileList {
  std::vector<std::string> files;  // absolute paths, each once; in the order of the patterns, sorted by byte within one
  std::vector<std::string> warnings;
};

/// Lists the files that the patterns name. Wildcards are * ? and [...] within a component of the path, as in
/// fnmatch(3); they do not match a leading '.'. A path that exists is taken literally. Folders and index files
/// (io/index/index_store.h) that a pattern matches are left out. Throws Error bad_pipeline for a pattern that matches
/// no file; the error has the absolute pattern and says what is there instead. Throws Error io_error if a folder cannot
/// be listed. Warns of files that several patterns name.
FileList list_files(const FilePatterns& patterns);

/// Returns "'FIRST' is" or "'FIRST' and 3 other files are", for messages.
std::string some_of(const std::string& first, size_t count);

/// A function in place of list_files, for tests and fuzzers that must not use the disk.
using ListFiles = std::function<FileList(const FilePatterns&)>;

}  // namespace feedline::flow
