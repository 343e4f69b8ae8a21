// All bytes of a regular file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace feedline::io {

class InputFile;

/// Its bytes, for as long as somebody holds them; aligned to 8. A small file is read. A large one is mapped, which is
/// no memory of this process, unless the process has too many mappings. A mapped file must not become shorter: those of
/// feedline are replaced, never written to (OutputFile). Thread-safe.
class WholeFile {
 public:
  /// Throws Error io_error, naming the file. nullptr: there is no such file.
  static std::shared_ptr<const WholeFile> open(const std::string& path);
  explicit WholeFile(const InputFile& file);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  bool mapped() const noexcept { return !read_; }

 private:
  std::unique_ptr<std::byte[]> read_;
  std::span<const std::byte> bytes_;
};

}  // namespace feedline::io
