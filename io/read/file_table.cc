#include "io/read/file_table.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "io/file.h"
#include "io/syscall_ops.h"

namespace feedline::io {
namespace {

/// The failure of an open() with O_DIRECT, as on a file system that refuses O_DIRECT there. Other file systems refuse
/// it in statx or at the first read.
using DirectOpenOp = HookedCall<"open O_DIRECT", EINVAL>;
using SetFlagsOp = HookedCall<"fcntl", EINVAL>;

/// Checks that the opened file is still a regular file, as it was when the files were listed, and clears O_NONBLOCK.
/// With O_NONBLOCK, a read by io_uring would fail if the file system cannot read without waiting. Returns 0 or an
/// errno.
int make_readable(int fd, int flags) noexcept {
  if (int error = injected<StatOp>()) return error;
  struct stat about {};
  if (fstat(fd, &about) != 0) return errno;
  if (!S_ISREG(about.st_mode)) return ESTALE;
  if (int error = injected<SetFlagsOp>()) return error;
  return fcntl(fd, F_SETFL, flags) < 0 ? errno : 0;
}

/// Makes later reads of an open file go through the page cache. Returns 0 or an errno.
int set_buffered(int fd) noexcept {
  if (int error = injected<SetFlagsOp>()) return error;
  const int flags = fcntl(fd, F_GETFL);
  return flags < 0 || fcntl(fd, F_SETFL, flags & ~O_DIRECT) < 0 ? errno : 0;
}

/// Returns the alignment that O_DIRECT needs for addresses and offsets, or 0 if the file cannot be read with O_DIRECT.
/// statx(2) reports the alignment since Linux 6.1; on an older kernel the result is block_bytes.
uint32_t direct_alignment(int fd) noexcept {
  struct statx about {};
  if (injected<StatOp>() || statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) != 0 ||
      !(about.stx_mask & STATX_DIOALIGN))
    return block_bytes;
  const uint32_t alignment = std::max(about.stx_dio_mem_align, about.stx_dio_offset_align);
  return about.stx_dio_offset_align > 0 && alignment <= block_bytes && std::has_single_bit(alignment) ? alignment : 0;
}

}  // namespace

FileId stat_file(std::string path) {
  const auto fail = [&](const std::string& what) { throw Error(Category::io_error, what, Place::of_file(path)); };
  struct stat about {};
  int error = injected<StatOp>();
  if (!error && stat(path.c_str(), &about) != 0) error = errno;
  if (error) fail(std::generic_category().message(error));
  if (!S_ISREG(about.st_mode)) fail(S_ISDIR(about.st_mode) ? "a folder, not a file" : "not a regular file");
  return {std::move(path),
          static_cast<uint64_t>(about.st_size),
          nanoseconds_of(about.st_mtim),
          nanoseconds_of(about.st_ctim),
          static_cast<uint64_t>(about.st_dev),
          static_cast<uint64_t>(about.st_ino)};
}

size_t FileTable::default_capacity() noexcept {
  rlimit limit{};
  const rlim_t allowed = getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 4 : 256;
  return static_cast<size_t>(std::clamp<rlim_t>(allowed, 1, 256));
}

FileTable::FileTable(std::vector<FileId> files, Toggle direct, size_t capacity)
    : files_(std::move(files)),
      direct_(direct),
      capacity_(capacity),
      entry_of_file_(files_.size(), no_entry),
      entries_(capacity) {
  const Lock lock(mutex_);
  for (uint32_t i = 0; i < capacity; i++) entries_[i].place = idle_.insert(idle_.end(), i);
}

bool FileTable::lend_spare() noexcept {
  if (spare_lent_++ < capacity_ - depth()) return true;
  spare_lent_--;
  return false;
}

void FileTable::begin_lease(Entry& entry) noexcept {
  if (entry.users++ == 0) leased_.splice(leased_.end(), idle_, entry.place);
}

void FileTable::end_lease(Entry& entry) noexcept {
  if (--entry.users == 0) idle_.splice(idle_.end(), leased_, entry.place);
}

bool FileTable::close_one_idle() noexcept {
  Descriptor closed;  // is destroyed after the lock
  const Lock lock(mutex_);
  for (const uint32_t index : idle_) {
    Entry& entry = entries_[index];
    if (!entry.descriptor) continue;
    closed = std::move(entry.descriptor);
    entry_of_file_[entry.file] = no_entry;
    entry.file = no_file;
    idle_.splice(idle_.begin(), idle_, entry.place);
    return true;
  }
  return false;
}

int FileTable::acquire(uint32_t file, Lease& lease, bool waits) noexcept {
  int error = 0;
  Lock lock(mutex_);
  while (entry_of_file_[file] != no_entry && entries_[entry_of_file_[file]].opening) opened_.wait(lock);
  const bool found = entry_of_file_[file] != no_entry;
  assert(found || !idle_.empty());
  const uint32_t index = found ? entry_of_file_[file] : idle_.front();
  Entry& entry = entries_[index];
  begin_lease(entry);
  if (!found) {
    if (entry.file != no_file) entry_of_file_[entry.file] = no_entry;
    entry_of_file_[file] = index;
    entry.file = file;
    entry.opening = true;
    Descriptor descriptor = std::move(entry.descriptor);

    lock.unlock();
    descriptor = {};  // closes the file that the entry had before
    uint32_t alignment = 1;
    error = open_file(file, waits, descriptor, alignment);
    if (error) descriptor = {};
    lock.lock();

    entry.opening = false;
    entry.descriptor = std::move(descriptor);
    entry.alignment = alignment;
    entry.waits = waits;
  } else if (waits && !entry.waits) {
    const int fd = entry.descriptor.fd();
    lock.unlock();
    error = make_readable(fd, 0);  // O_DIRECT is off, else the file would have been opened for reads that wait
    lock.lock();
    entry.waits = entry.waits || error == 0;
  }
  if (!error) {
    lease = {index, file, entry.descriptor.fd(), entry.alignment};
  } else {
    if (!found) {
      entry_of_file_[file] = no_entry;
      entry.file = no_file;
    }
    end_lease(entry);
  }
  lock.unlock();
  if (!found) opened_.notify_all();
  return error;
}

void FileTable::release(const Lease& lease) noexcept {
  const Lock lock(mutex_);
  end_lease(entries_[lease.entry]);
}

int FileTable::open_file(uint32_t file, bool waits, Descriptor& opened, uint32_t& alignment) noexcept {
  int flags = direct_ == Toggle::off ? 0 : O_DIRECT;
  const auto open = [&] {
    const int error = flags ? injected<DirectOpenOp>() : 0;
    return error ? -error : open_for_reading(files_[file].uri.c_str(), flags);
  };
  int fd;
  while ((fd = open()) < 0) {
    // The program uses descriptors, too, so there may be too few. Then idle files are closed before the failure is
    // reported.
    if ((fd == -EMFILE || fd == -ENFILE) && close_one_idle()) continue;
    if (fd != -EINVAL || !flags) return -fd;
    if (direct_ == Toggle::on) return EOPNOTSUPP;
    flags = 0;
  }
  opened = Descriptor(fd);
  if (!waits) return 0;
  if (const int error = make_readable(fd, flags)) return error;
  alignment = flags ? direct_alignment(fd) : 1;
  if (alignment > 0) return 0;
  alignment = 1;
  return direct_ == Toggle::on ? EOPNOTSUPP : set_buffered(fd);
}

int FileTable::refuse_direct(Lease& lease) noexcept {
  if (direct_ == Toggle::on) return EOPNOTSUPP;
  const Lock lock(mutex_);
  // Other reads of this file, with O_DIRECT's alignment, may be in flight. They stay valid if the file is read through
  // the page cache.
  if (int error = set_buffered(lease.fd)) return error;
  entries_[lease.entry].alignment = lease.alignment = 1;
  return 0;
}

int FileTable::verify(const Lease& lease) const noexcept {
  if (int error = injected<StatOp>()) return error;
  struct stat about {};
  if (fstat(lease.fd, &about) != 0) return errno;
  const FileId& id = files_[lease.file];
  const bool same = S_ISREG(about.st_mode) && static_cast<uint64_t>(about.st_size) == id.size &&
                    nanoseconds_of(about.st_mtim) == id.version;
  return same ? 0 : ESTALE;
}

}  // namespace feedline::io
