// Opens the files of a read backend. A file is opened when it is first read, and is not closed while a read uses it. A
// bounded number of files is open at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "base/descriptor.h"
#include "base/mutex.h"
#include "io/read/read_backend.h"

namespace feedline::io {

/// Opens files and leases their descriptors to reads. Thread-safe. Files are opened outside the lock, so that one slow
/// file does not delay the others.
class FileTable {
 public:
  /// An open file that is leased to a read until release().
  struct Lease {
    uint32_t entry = 0, file = 0;
    int fd = -1;
    /// Addresses, offsets and lengths of reads must be multiples of this. With O_DIRECT it is a divisor of block_bytes.
    /// It is 1 if the file is read through the page cache.
    uint32_t alignment = 1;
  };

  /// `direct` says whether to use O_DIRECT. If a file system refuses it, this is an error with `on`; with `automatic`
  /// the file is read through the page cache. `capacity` is the largest number of open files, at least 1.
  FileTable(std::vector<FileId> files, Toggle direct, size_t capacity = default_capacity());
  FileTable(const FileTable&) = delete;
  FileTable& operator=(const FileTable&) = delete;

  /// Returns 256, or a quarter of RLIMIT_NOFILE if that is less. The program needs the other descriptors.
  static size_t default_capacity() noexcept;

  /// Returns the largest number of leases that a backend may hold at a time: half of the capacity, rounded up. The rest
  /// of the capacity is for spare leases, which calls of read_cached() on any thread get, first come, first served.
  size_t depth() const noexcept { return (capacity_ + 1) / 2; }
  /// Reserves a spare lease. Returns false if all spare leases are taken. return_spare() gives it back.
  bool lend_spare() noexcept;
  void return_spare() noexcept { spare_lent_--; }
  Toggle direct() const noexcept { return direct_; }
  std::atomic<int> opening{0};  // callers of read_cached() that wait for acquire()

  /// Opens `file`, or finds it open, and fills in `lease`. If all entries have files, it closes the file that has been
  /// without leases for longest. It waits for another program only if that program holds a kernel lease on the file
  /// (F_SETLEASE in fcntl(2)). The kernel then makes that program give the lease up.
  ///
  /// Returns 0 or an errno. EOPNOTSUPP means that O_DIRECT is `on` and the file system refuses it. ESTALE means that
  /// this is no longer a regular file. If `waits` is false, only reads that wait for nothing may be made (RWF_NOWAIT),
  /// and whether this is a regular file is left to verify(), which saves two system calls. Precondition: the backend
  /// holds fewer than depth() leases, or the caller has reserved a spare lease with lend_spare().
  int acquire(uint32_t file, Lease& lease, bool waits = true) noexcept;
  void release(const Lease& lease) noexcept;

  /// Handles a read with O_DIRECT that has failed with EINVAL. If O_DIRECT is `automatic`, makes later reads of the
  /// file go through the page cache and returns 0, or an errno if this fails. If O_DIRECT is `on`, returns EOPNOTSUPP.
  int refuse_direct(Lease& lease) noexcept;

  /// Checks the file after a read. Returns ESTALE if this is not a regular file, or if its size or version are no
  /// longer those of its FileId: the bytes that were read may then be of a different version. Otherwise returns 0, or
  /// the errno if the check itself fails.
  int verify(const Lease& lease) const noexcept;

 private:
  struct Entry {  // an open file, or room for one
    Descriptor descriptor;
    uint32_t file = no_file;
    uint32_t alignment = 1;
    uint32_t users = 0;    // leases of this entry
    bool opening = false;  // whether a thread is opening the file, without holding the lock
    bool waits = false;    // whether reads may wait for bytes: this is a regular file, and O_NONBLOCK is cleared
    std::list<uint32_t>::iterator place;  // of this entry in idle_ or leased_
  };
  static constexpr uint32_t no_file = UINT32_MAX, no_entry = UINT32_MAX;

  void begin_lease(Entry& entry) noexcept FEEDLINE_REQUIRES(mutex_);
  void end_lease(Entry& entry) noexcept FEEDLINE_REQUIRES(mutex_);
  /// Closes the file that has been without leases for longest. Returns false if there is none.
  bool close_one_idle() noexcept;
  /// Sets `opened` to the descriptor, and `alignment` as Lease explains. Returns 0 or an errno.
  int open_file(uint32_t file, bool waits, Descriptor& opened, uint32_t& alignment) noexcept;

  const std::vector<FileId> files_;
  const Toggle direct_;
  const size_t capacity_;
  Mutex mutex_;
  Condition opened_;
  std::vector<uint32_t> entry_of_file_ FEEDLINE_GUARDED_BY(mutex_);
  std::vector<Entry> entries_ FEEDLINE_GUARDED_BY(mutex_);
  // The entries without leases, with the one that has been so for longest first; and all others. Splicing moves them.
  std::list<uint32_t> idle_ FEEDLINE_GUARDED_BY(mutex_), leased_ FEEDLINE_GUARDED_BY(mutex_);
  std::atomic<size_t> spare_lent_{0};
};

}  // namespace feedline::io
