// Lists the files that a source's patterns name.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/read/source.h"

namespace feedline::flow {

struct FilePatterns {
  std::string field;   // the source in messages, such as "source[1]"
  std::string folder;  // an absolute path, to which relative patterns are relative
  std::vector<std::string> files;
  std::vector<std::string> exclude;  // with a '/': compared with the whole path; else with the file's name
};

struct FileList {
  // Absolute paths, each once, in the order of the patterns. The files of one pattern are sorted by byte.
  std::vector<std::string> files;
  std::vector<std::string> warnings;
};

/// Lists the files of a source that the patterns name; io::Source::list says how patterns match. Index files
/// (io/index/index_store.h) that a pattern with wildcards matches are left out. Throws Error bad_pipeline for a pattern
/// that matches no file; the error has the absolute pattern and says what is there instead. Throws Error io_error if
/// the source cannot be listed. Warns of files that several patterns name.
FileList list_files(const FilePatterns& patterns);

/// Returns "'FIRST' is" or "'FIRST' and 3 other files are", for messages.
std::string some_of(const std::string& first, size_t count);

/// A function in place of list_files, for tests and fuzzers that must not use the disk.
using ListFiles = std::function<FileList(const FilePatterns&)>;

}  // namespace feedline::flow
