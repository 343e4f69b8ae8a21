// Files that are open for reading.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "feedline/error.h"

namespace feedline::io {

/// Returns the Error io_error of a system call that has failed with the errno `error`. Its place is `path`, and its
/// message is "WHAT: TEXT OF THE ERRNO". `what` says what the system has refused, such as "cannot be opened".
Error io_failure(std::string path, std::string_view what, int error);

/// Opens a regular file for reading, with O_NONBLOCK and `flags`. Waits for another program only if that program holds
/// a kernel lease on the file (F_SETLEASE in fcntl(2)). Returns the descriptor or a negative errno.
int open_for_reading(const char* path, int flags) noexcept;
/// Returns a timestamp of a file in nanoseconds, the form in which FileId has such times.
uint64_t nanoseconds_of(const timespec& time) noexcept;

/// A data file that a Source (io/read/source.h) has opened. Reading is thread-safe.
class SourceFile {
 public:
  virtual ~SourceFile() = default;
  /// Returns the file's name: the path of a local file.
  virtual const std::string& path() const noexcept = 0;
  /// Returns the size in bytes that the file had when it was opened.
  virtual uint64_t size() const noexcept = 0;
  /// Fills all of `into` with the bytes from `offset` on. Precondition: the range lies inside size(). Throws Error
  /// io_error, with the file as its place, if the file cannot be read or has become shorter since it was opened.
  virtual void read_at(uint64_t offset, std::span<std::byte> into) const = 0;
  /// Returns the version of the content (FileId::version) that the file had when it was opened.
  virtual uint64_t version() const noexcept = 0;
  /// Throws Error io_error if the file has been written to since it was opened. Bytes that were read may then be of the
  /// old or of the new content.
  virtual void check_unchanged() const = 0;
  /// Returns whether the system keeps the bytes that are read in its page cache. Only then does read_ahead() have an
  /// effect.
  virtual bool has_page_cache() const noexcept { return false; }
  /// Asks the system to bring a range into the page cache, and does not wait for it. If the system refuses,
  /// read_at() of the range still works, but takes longer.
  virtual void read_ahead(uint64_t /*offset*/, uint64_t /*length*/) const noexcept {}
};

/// A regular file of the local file system. The destructor closes it. Members that open or read throw Error io_error,
/// with the file as its place, if the system refuses or if the path does not name a regular file.
class InputFile final : public SourceFile {
 public:
  explicit InputFile(std::string path);
  /// Opens the file, or returns nothing if no file of this name exists.
  static std::optional<InputFile> find(std::string path);

  const std::string& path() const noexcept override { return path_; }
  uint64_t size() const noexcept override { return size_; }
  void read_at(uint64_t offset, std::span<std::byte> into) const override;
  uint64_t version() const noexcept override { return version_; }  // the mtime in nanoseconds
  void check_unchanged() const override;
  bool has_page_cache() const noexcept override { return true; }
  void read_ahead(uint64_t offset, uint64_t length) const noexcept override;

 private:
  InputFile() = default;
  /// Returns the errno if open(2) fails, else 0. Throws Error io_error if the opened file is not a regular file or its
  /// size cannot be read.
  int open(std::string path);

  std::string path_;
  Descriptor descriptor_;
  uint64_t size_ = 0, version_ = 0;
};

}  // namespace feedline::io
