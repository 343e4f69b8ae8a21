// The TFRecord files that are named on the command line: reads them completely, several at a time, and reports on each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "feedline/records.h"
#include "io/index/index.h"
#include "tool/common/json.h"

namespace feedline::tool {

/// The files, and how they are read.
struct FileArgs {
  std::vector<std::string> files;
  Compression compression = Compression::automatic;
  uint64_t record_limit = io::default_record_limit;  // bytes of a payload; a longer record is an error
};

/// What a command found in one file.
struct FileSummary {
  struct Damage {
    Error error;
    uint64_t skipped_bytes = 0;  // bytes that were skipped because of the damage
  };

  std::string file;
  Compression compression = Compression::automatic;  // `automatic`: opening or verifying it failed
  uint64_t size = 0;                                 // bytes on disk
  uint64_t records = 0;                              // the number of good records
  uint64_t payload_bytes = 0;                        // the bytes of the good records' payloads
  uint64_t record_min = 0, record_max = 0;           // the bytes of the smallest and the largest of these payloads
  std::vector<Damage> damage;

  /// Returns whether the file has a record that is longer than FileArgs::record_limit. Such a file need not be damaged.
  bool exceeds_limit() const noexcept;
  /// Fills in what counting the records of `file` has found.
  void take(const io::FileIndex& index);
  bool opened() const noexcept { return compression != Compression::automatic; }
};

/// Returns an object with `file`, `compression`, `records`, `payload_bytes` and `errors`. `errors` is a list of
/// objects, one for each error, with `category`, `offset`, `record`, `skipped_bytes` and `message`.
Json to_json(const FileSummary& summary);

/// Returns the total size on disk, in bytes, of the files that exist.
uint64_t size_of(const std::vector<std::string>& files);

/// Reads every file to its end, several at a time, and shows progress. Calls on_record(index of the file, record) for
/// each good record, in order within a file, on one thread per file. Returns a summary of each file, with its damage.
std::vector<FileSummary> scan_files(const FileArgs& args,
                                    const std::function<void(size_t file, const Record& record)>& on_record);

/// Verifies every file and shows progress. All threads share the work, even on a single large file. Returns a summary
/// of each file, with its damage.
std::vector<FileSummary> verify_files(const FileArgs& args);

/// Returns a text for people, without a line end: "a.tfrecord: 3,000 records, 604.7 KiB, damaged".
std::string describe(const FileSummary& summary);
/// Prints one line on standard error for each damaged place of each file. Returns how many files are damaged.
size_t print_damage(const std::vector<FileSummary>& summaries);

}  // namespace feedline::tool
