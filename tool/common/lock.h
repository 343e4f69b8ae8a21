// Locks on folders and files that two processes must not write to at the same time.
#pragma once

#include <string>

namespace feedline::cli {

/// Locks a folder for this process; makes the folder if it is missing. Throws Error io_error if another process holds
/// the lock. On file systems without locks it does nothing.
class LockedFolder {
 public:
  explicit LockedFolder(const std::string& path);
  ~LockedFolder();
  LockedFolder(const LockedFolder&) = delete;
  LockedFolder& operator=(const LockedFolder&) = delete;

 private:
  int fd_;
};

/// Locks a file in the same way. The file itself may be replaced meanwhile, so the lock is on FILE.lock beside it,
/// which the destructor removes.
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
