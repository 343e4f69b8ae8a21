// TFRecord files named on the command line: reading them whole, side by side, and what there is to say about each.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "feedline/records.h"
#include "io/index/index.h"
#include "tool/common/json.h"

namespace feedline::cli {

struct FileArgs {
  std::vector<std::string> files;
  Compression compression = Compression::automatic;
};

/// TFRecord files by name: `data/*` matches their indexes, too, which are left out (unless there is nothing else).
CLI::Option* add_files(CLI::App& command, const std::string& name, std::vector<std::string>& files,
                       const std::string& help);
/// FILE... and --compression.
void add_file_args(CLI::App& command, FileArgs& args);
/// --compression alone.
void add_compression(CLI::App& command, Compression& compression);

/// What a file turned out to be.
struct FileSummary {
  struct Damage {
    Error error;
    uint64_t skipped_bytes = 0;
  };

  std::string file;
  Compression compression = Compression::automatic;  // automatic: the file could not be opened
  uint64_t size = 0;                                 // on disk
  uint64_t records = 0;                              // good ones, and of these:
  uint64_t payload_bytes = 0, record_min = 0, record_max = 0;
  std::vector<Damage> damage;

  /// Fills in what a counting pass found of `file`.
  void take(const io::FileIndex& index);
  bool opened() const noexcept { return compression != Compression::automatic; }
};

/// file, compression, records, payload_bytes, errors: category, offset, record, skipped_bytes, message.
Json to_json(const FileSummary& summary);

/// Bytes on disk of those that are there.
uint64_t size_of(const std::vector<std::string>& files);

/// Reads every file to its end, several at a time, with progress on a terminal: `on_record(number of the file, record)`
/// for each good record, in order within a file, one thread per file. What is wrong with a file is in its summary.
std::vector<FileSummary> scan_files(const FileArgs& args, const std::string& what,
                                    const std::function<void(size_t file, const Record& record)>& on_record);

/// The same without a look at the records: on all threads, one large file too.
std::vector<FileSummary> verify_files(const FileArgs& args, const std::string& what);

/// "a.tfrecord: 3,000 records, 604.7 KiB, damaged" for people, without a line end.
std::string describe(const FileSummary& summary);
/// One line on standard error for each damage of each file. Returns how many files are damaged.
size_t print_damage(const std::vector<FileSummary>& summaries);

}  // namespace feedline::cli
