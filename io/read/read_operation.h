// Controls one read, from the opening of its file to its result. A backend only makes the system calls. This file
// decides what the results of the calls mean, so that they mean the same for all backends.
#pragma once

#include <cstdint>
#include <optional>

#include "io/read/file_table.h"
#include "io/read/read_progress.h"

namespace feedline::io {

/// The state of one read. Not thread-safe.
class ReadOperation {
 public:
  /// Acquires the file. Returns 0 if the backend is to make call() now. Otherwise returns an errno, and the operation
  /// is over. `files` must outlive the operation. `waits`: whether the calls may wait for the bytes.
  int begin(FileTable& files, const Read& read, bool waits = true) noexcept;

  /// Returns the call to make. To be called once after begin(), and once after each advance() that returned nothing.
  ReadCall call() const noexcept;
  int fd() const noexcept { return lease_.fd; }
  void* tag() const noexcept { return tag_; }

  /// Takes the result of the call that call() returned: a number of bytes, or a negative errno. Returns nothing if a
  /// further call is to be made. Otherwise returns 0 or an errno, and the operation is over.
  std::optional<int> advance(int64_t result) noexcept;

  /// Ends the operation before it has a result. Precondition: no call is under way.
  void abandon() noexcept { files_->release(lease_); }

 private:
  FileTable* files_ = nullptr;
  FileTable::Lease lease_;
  ReadProgress progress_;
  void* tag_ = nullptr;
};

/// Implements ReadBackend::read_cached() for backends that read through a FileTable.
std::optional<int> read_cached(FileTable& files, const Read& read) noexcept;

}  // namespace feedline::io
