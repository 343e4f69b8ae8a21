// A regular file, open for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace feedline::io {

/// Movable; closes itself. Reading is thread-safe. Every member throws Error io_error, naming the file.
class InputFile {
 public:
  explicit InputFile(std::string path);
  /// Nothing where there is no such file.
  static std::optional<InputFile> find(std::string path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  /// When it was opened.
  uint64_t size() const noexcept { return size_; }
  int descriptor() const noexcept { return fd_; }

  /// Fills all of `into`; the range must lie inside size(). A file that has become shorter is an error.
  void read_at(uint64_t offset, std::span<std::byte> into) const;

 private:
  InputFile() = default;
  int open(std::string path);

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace feedline::io
