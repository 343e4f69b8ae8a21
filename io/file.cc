#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/syscall_hooks.h"
#include "io/syscall_ops.h"

namespace feedline::io {
namespace {

bool is_regular(const char* path) noexcept {
  struct stat about {};
  return stat(path, &about) == 0 && S_ISREG(about.st_mode);
}

}  // namespace

Error io_failure(std::string path, std::string_view what, int error) {
  return Error(Category::io_error, fmt::format("{}: {}", what, std::strerror(error)), Place::of_file(std::move(path)));
}

int open_for_reading(const char* path, int flags) noexcept {
  if (int error = injected<OpenOp>()) return -error;
  int fd;
  do {
    // Without O_NONBLOCK the open of a FIFO that has no writer would wait for ever.
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    // EWOULDBLOCK for a regular file means that another program has a lease on it, and the kernel has asked that
    // program to give the lease up. The second open waits until it is given up.
    if (fd < 0 && errno == EWOULDBLOCK && is_regular(path)) fd = open(path, O_RDONLY | O_CLOEXEC | flags);
  } while (fd < 0 && errno == EINTR);
  return fd < 0 ? -errno : fd;
}

uint64_t nanoseconds_of(const timespec& time) noexcept {
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

InputFile::InputFile(std::string path) {
  if (const int error = open(std::move(path))) throw io_failure(path_, "cannot be opened", error);
}

std::optional<InputFile> InputFile::find(std::string path) {
  InputFile file;
  const int error = file.open(std::move(path));
  if (error == ENOENT || error == ENOTDIR) return std::nullopt;
  if (error) throw io_failure(file.path_, "cannot be opened", error);
  return file;
}

int InputFile::open(std::string path) {
  path_ = std::move(path);
  const int opened = open_for_reading(path_.c_str(), 0);
  if (opened < 0) return -opened;
  descriptor_ = Descriptor(opened);
  struct stat status {};
  const int injected_error = injected<StatOp>();
  if (const int error = injected_error ? injected_error : fstat(opened, &status) != 0 ? errno : 0)
    throw io_failure(path_, "its size cannot be read", error);
  if (!S_ISREG(status.st_mode)) throw Error(Category::io_error, "is not a regular file", Place::of_file(path_));
  size_ = static_cast<uint64_t>(status.st_size);
  version_ = nanoseconds_of(status.st_mtim);
  return 0;
}

void InputFile::read_at(uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    size_t wanted = into.size();
    if (injected<ShortReadOp>()) wanted = (wanted + 1) / 2;
    int error = injected<InterruptedReadOp>();
    if (!error) error = injected<ReadOp>();
    const ssize_t got = error ? -1 : pread(descriptor_.fd(), into.data(), wanted, static_cast<off_t>(offset));
    if (got < 0) {
      if (!error) error = errno;
      if (error == EINTR) continue;
      throw io_failure(path_, fmt::format("cannot be read at offset {}", offset), error);
    }
    if (got == 0)
      throw Error(Category::io_error,
                  fmt::format("has become shorter while it was read: it had {} bytes, and ends at or before byte {}",
                              size_, offset),
                  Place::of_file(path_));
    offset += static_cast<uint64_t>(got);
    into = into.subspan(static_cast<size_t>(got));
  }
}

void InputFile::read_ahead(uint64_t offset, uint64_t length) const noexcept {
  posix_fadvise(descriptor_.fd(), static_cast<off_t>(offset), static_cast<off_t>(length), POSIX_FADV_WILLNEED);
}

void InputFile::check_unchanged() const {
  struct stat status {};
  const int injected_error = injected<StatOp>();
  if (const int error = injected_error ? injected_error : fstat(descriptor_.fd(), &status) != 0 ? errno : 0)
    throw io_failure(path_, "its size cannot be read", error);
  if (static_cast<uint64_t>(status.st_size) != size_ || nanoseconds_of(status.st_mtim) != version_)
    throw Error(Category::io_error,
                "has changed since it was opened; start again, and replace a file only by renaming a new file to its "
                "name",
                Place::of_file(path_));
}

}  // namespace feedline::io
