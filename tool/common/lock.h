// Locks on folders and files that two processes must not write to at the same time.
#pragma once

#include <string>

#include "base/descriptor.h"

namespace feedline::tool {

/// A lock on a folder, held until the destructor runs. The constructor creates the folder if it does not exist, and
/// throws Error io_error if another process holds the lock. Nothing is locked if the file system has no locks, or if it
/// cannot lock folders, such as NFS.
class LockedFolder {
 public:
  explicit LockedFolder(const std::string& path);

 private:
  Descriptor locked_;
};

/// A lock on a file, held until the destructor runs. The constructor throws Error io_error if another process holds the
/// lock. The file may be replaced while it is locked, so the lock is on FILE.lock beside it. The destructor removes
/// FILE.lock.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path);
  ~LockedFile();
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

 private:
  const std::string lock_;
  Descriptor locked_;
};

}  // namespace feedline::tool
