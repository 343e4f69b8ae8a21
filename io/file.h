// A regular file that is open for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace feedline::io {

/// An open file. It is movable, and the destructor closes it. Reading is thread-safe. Members that open or read throw
/// Error io_error, with the file as its place, if the system refuses or if this is not a regular file.
class InputFile {
 public:
  explicit InputFile(std::string path);
  /// Opens the file, or returns nothing if no file of this name exists.
  static std::optional<InputFile> find(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  /// Returns the size in bytes that the file had when it was opened.
  uint64_t size() const noexcept { return size_; }
  int descriptor() const noexcept { return fd_; }

  /// Fills all of `into` with the bytes from `offset` on. Precondition: the range lies inside size(). Throws Error
  /// io_error also if the file has become shorter since.
  void read_at(uint64_t offset, std::span<std::byte> into) const;

 private:
  InputFile() = default;
  /// Returns the errno of open(2), or 0. Throws Error io_error for all other failures.
  int open(std::string path);

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace feedline::io
