// The files that a source's patterns name.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace feedline::flow {

struct FilePatterns {
  std::string field;   // "source[1]": for messages
  std::string folder;  // what relative patterns are relative to; empty: the working directory
  std::vector<std::string> files;
  std::vector<std::string> exclude;  // with a '/': of the whole path; without: of the file's name in any folder
};

struct FileList {
  std::vector<std::string> files;  // absolute; in the order of the patterns, sorted by byte within one; each once
  std::vector<std::string> warnings;
};

/// Wildcards are * ? and [...] within a component, as in fnmatch(3), and match no leading '.'; a path that exists is
/// taken literally. Folders and index files (io/index/index_store.h) that a pattern matches are left out. Throws Error
/// bad_pipeline for a pattern that matches no file, with the absolute pattern and what is there instead. Warns of files
/// that several patterns name.
FileList list_files(const FilePatterns& patterns);

/// "'FIRST' is" or "'FIRST' and 3 other files are": for messages.
std::string some_of(const std::string& first, size_t count);

/// Stands in for list_files where a test or a fuzzer wants no disk.
using ListFiles = std::function<FileList(const FilePatterns&)>;

}  // namespace feedline::flow
