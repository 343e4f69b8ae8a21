// The files of a backend: opened when first read, a bounded number of them at a time, never closed under a read.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "io/read/read_backend.h"

namespace feedline::io {

/// Thread-safe. Opening happens outside the lock, so that one slow file does not hold up the others.
class FileTable {
 public:
  /// What a read needs to know of its open file.
  struct Lease {
    uint32_t slot = 0, file = 0;
    int fd = -1;
    uint32_t alignment = 1;  // of addresses, offsets and lengths: O_DIRECT's, a divisor of block_bytes; 1: buffered
  };

  /// direct: off; on: a file system that refuses O_DIRECT is an error; automatic: then that file is read buffered.
  /// capacity: open files at most, at least 1.
  FileTable(std::vector<FileId> files, Toggle direct, size_t capacity = default_capacity());
  ~FileTable();
  FileTable(const FileTable&) = delete;
  FileTable& operator=(const FileTable&) = delete;

  /// 256, or a quarter of RLIMIT_NOFILE where that is less: the rest is the program's.
  static size_t default_capacity() noexcept;

  /// Leases that a backend may have out at a time. As many more, less one, are lent to who asks first.
  size_t depth() const noexcept { return (slots_.size() + 1) / 2; }
  bool lend_spare() noexcept;
  void return_spare() noexcept { spare_lent_--; }
  Toggle direct() const noexcept { return direct_; }

  /// Opens `file`, or finds it open; in exchange the file unused for longest is closed. Waits for
  /// another program only where that holds a lease on the file, which the kernel makes it give up. Returns 0 or an
  /// errno; EOPNOTSUPP: O_DIRECT is on and refused; ESTALE: it is no longer a regular file. Precondition: the lease is
  /// one of the backend's, or lent.
  int acquire(uint32_t file, Lease& lease) noexcept;
  void release(const Lease& lease) noexcept;

  /// A read with O_DIRECT gave EINVAL: goes on buffered where that is allowed (0), else EOPNOTSUPP.
  int refuse_direct(Lease& lease) noexcept;

  /// After a read: ESTALE when size or version are no longer those of its FileId, so that its bytes may be others.
  int verify(const Lease& lease) const noexcept;

 private:
  struct Slot {
    int fd = -1;
    uint32_t file = no_file;
    uint32_t alignment = 1;
    uint32_t users = 0;
    bool opening = false;
    uint64_t last_used = 0;
  };
  static constexpr uint32_t no_file = UINT32_MAX, no_slot = UINT32_MAX;

  uint32_t idle_slot() const noexcept;
  bool close_one_idle() noexcept;
  int open_file(uint32_t file, int& fd, uint32_t& alignment) noexcept;

  const std::vector<FileId> files_;
  const Toggle direct_;
  std::mutex mutex_;
  std::condition_variable opened_;
  std::vector<uint32_t> slot_of_file_;
  std::vector<Slot> slots_;
  uint64_t clock_ = 0;
  std::atomic<size_t> spare_lent_{0};
};

}  // namespace feedline::io
