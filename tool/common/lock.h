// What two processes must not write to at once.
#pragma once

#include <string>

namespace feedline::cli {

/// Holds a folder, made if it is missing, for this process alone. Throws Error io_error if another process holds it. On
/// file systems that lock nothing it holds nothing.
class LockedFolder {
 public:
  explicit LockedFolder(const std::string& path);
  ~LockedFolder();
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;

 private:
  int fd_;
};

/// The same for a file, which may be replaced meanwhile: it locks FILE.lock beside it, and removes that in the end.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path);
  ~LockedFile();
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

 private:
  const std::string lock_;
  int fd_;
};

}  // namespace feedline::cli
