#include "io/read/read_operation.h"

#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>

#include "base/syscall_hooks.h"
#include "io/syscall_ops.h"

namespace feedline::io {
namespace {

/// The failure of a read with O_DIRECT, as on a file system that accepts O_DIRECT at open and refuses it at the first
/// read.
using DirectReadOp = HookedCall<"read O_DIRECT", EINVAL>;

/// The failure of a read whose bytes are not in the page cache.
using CachedReadOp = HookedCall<"read cached", EAGAIN>;

// Returns whether the file lies only in memory, so that reads do not wait for a disk, except for swap.
bool lies_in_memory(int fd) noexcept {
  struct statfs system {};
  return fstatfs(fd, &system) == 0 && (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC);
}

int64_t read_without_waiting(int fd, const ReadCall& call) noexcept {
  if (int error = injected<CachedReadOp>()) return -error;
  if (int error = injected<ReadOp>()) return -error;
  const iovec memory{call.buffer, call.length};
  const auto read = [&](int flags) { return preadv2(fd, &memory, 1, static_cast<off_t>(call.offset), flags); };
  const auto result_of = [](ssize_t bytes) -> int64_t { return bytes < 0 ? -errno : bytes; };
  const int64_t result = result_of(read(RWF_NOWAIT));
  return result == -EOPNOTSUPP && lies_in_memory(fd) ? result_of(read(0)) : result;
}

}  // namespace

int ReadOperation::begin(FileTable& files, const Read& read, bool waits) noexcept {
  files_ = &files;
  tag_ = read.tag;
  if (int error = files.acquire(read.file, lease_, waits)) return error;
  progress_ = ReadProgress(read, lease_.alignment);
  return 0;
}

ReadCall ReadOperation::call() const noexcept {
  ReadCall call = progress_.next();
  if (injected<ShortReadOp>()) call.length = std::max(lease_.alignment, call.length / 2 & ~(lease_.alignment - 1));
  return call;
}

std::optional<int> ReadOperation::advance(int64_t result) noexcept {
  if (int error = injected<InterruptedReadOp>()) result = -error;
  if (lease_.alignment > 1)
    if (int error = injected<DirectReadOp>()) result = -error;

  int error = 0;
  if (result == -EINTR || result == -EAGAIN) return std::nullopt;
  if (result == -EINVAL && lease_.alignment > 1) {
    error = files_->refuse_direct(lease_);
    if (error == 0) return std::nullopt;  // further calls of this read stay aligned, which does no harm
  } else if (result == -ENODATA || (result == -EOPNOTSUPP && lease_.alignment == 1)) {
    error = EIO;  // a bad sector, or an unreadable file; to callers, these two errnos mean something else
  } else if (result == -ESPIPE || result == -EISDIR) {
    error = ESTALE;  // a FIFO or a folder is there now, not the file
  } else if (result < 0) {
    error = static_cast<int>(-result);
  } else {
    switch (progress_.advance(static_cast<uint64_t>(result))) {
      case ReadProgress::Step::again:
        return std::nullopt;
      case ReadProgress::Step::done:
        error = files_->verify(lease_);
        break;
      case ReadProgress::Step::ended:
        error = ENODATA;
        break;
    }
  }
  files_->release(lease_);
  return error;
}

std::optional<int> read_cached(FileTable& files, const Read& read) noexcept {
  if (files.direct() != Toggle::off || !files.lend_spare()) return std::nullopt;
  std::optional<int> over;
  ReadOperation operation;
  files.opening++;
  if (const int error = operation.begin(files, read, false)) over = error;
  files.opening--;
  while (!over) {
    const int64_t result = read_without_waiting(operation.fd(), operation.call());
    // The page cache does not hold the bytes (EAGAIN), or the file system (EOPNOTSUPP) or the kernel (ENOSYS) cannot
    // read without waiting.
    if (result == -EAGAIN || result == -EOPNOTSUPP || result == -ENOSYS) {
      operation.abandon();
      break;
    }
    over = operation.advance(result);
  }
  files.return_spare();
  return over;
}

}  // namespace feedline::io
