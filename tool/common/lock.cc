#include "tool/common/lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "feedline/error.h"
#include "io/file.h"
#include "tool/common/text_file.h"

namespace feedline::tool {
namespace {

constexpr int most_tries = 100;

/// Opens the file or folder and locks it. Returns no descriptor if another process holds the lock.
Descriptor open_locked(const std::string& path, int flags) {
  Descriptor opened(open(path.c_str(), flags | O_CLOEXEC, 0666));
  if (!opened) throw io::io_failure(path, "cannot be opened", errno);
  // Only EWOULDBLOCK means that another process holds the lock. Every other failure of flock() is ignored, because some
  // network file systems cannot lock.
  if (flock(opened.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return opened;
}

/// Returns whether the path still names the open file, which means that it has not been removed.
bool is_at(const std::string& path, int fd) {
  struct stat opened {
  }, there{};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
         opened.st_dev == there.st_dev;
}

}  // namespace

LockedFolder::LockedFolder(const std::string& path) {
  make_folder(path);
  locked_ = open_locked(path, O_RDONLY | O_DIRECTORY);
  if (!locked_)
    throw Error(
        Category::io_error,
        "another feedline process is writing to this folder; wait until that process ends, or use a different folder",
        Place::of_file(path));
}

LockedFile::LockedFile(const std::string& path) : lock_(path + ".lock"), locked_(open_locked(lock_, O_RDWR | O_CREAT)) {
  // If the previous holder removed the file between our open() and flock(), we hold a lock that no one else will see.
  // Then the file must be created and locked again.
  for (int tries = 0; locked_ && !is_at(lock_, locked_.fd()) && tries < most_tries; tries++) {
    locked_ = {};  // gives up the lock, which may be on the same file
    locked_ = open_locked(lock_, O_RDWR | O_CREAT);
  }
  if (!locked_)
    throw Error(Category::io_error,
                "another feedline process is using this file; wait until that process ends, or use a different file",
                Place::of_file(path));
}

LockedFile::~LockedFile() {
  unlink(lock_.c_str());  // while the lock is held, so that no process can lock a removed file
}

}  // namespace feedline::tool
