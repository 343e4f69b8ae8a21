// A file that appears whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace feedline::io {

/// Written under a temporary name beside its own. Every member throws Error io_error, naming the file; after that, and
/// when destroyed without publish(), nothing is left. Not thread-safe.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const noexcept { return path_; }

  /// Throws after publish() or a failure.
  void check_open();
  /// Behind what write() wrote before.
  void write(std::span<const std::byte> bytes);
  /// Anywhere; what is left out reads as zeros.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  /// What was written.
  void read_at(uint64_t offset, std::span<std::byte> out);
  /// Syncs the content, gives it its name (replacing what has it) and syncs the folder, once.
  void publish();
  /// Without syncing, for what can be made again and says by itself whether it is whole: a power cut may leave less.
  void publish_unsynced();

 private:
  [[noreturn]] void fail(const char* what, int error);
  void rename_to_path();
  void discard() noexcept;

  const std::string path_;
  std::string temporary_;  // empty: there is none
  int fd_ = -1;
  uint64_t written_ = 0;  // by write()
};

}  // namespace feedline::io
