// A regular file, mapped for reading.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace feedline::io {

/// Its bytes, for as long as somebody holds them; page-aligned. They are read at once and are no memory of this
/// process. A mapped file must not become shorter: those of feedline are replaced, never written to (OutputFile).
/// Thread-safe.
class MappedFile {
 public:
  /// Throws Error io_error, naming the file. nullptr: there is no such file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace feedline::io
