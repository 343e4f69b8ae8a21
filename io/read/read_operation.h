// One read from its file's opening to its answer. A backend only makes the calls; what they mean is decided here, once.
#pragma once

#include <cstdint>
#include <optional>

#include "io/read/file_table.h"
#include "io/read/read_progress.h"

namespace feedline::io {

class ReadOperation {
 public:
  /// 0: make call() now. Else an errno, and the operation is over.
  int begin(FileTable& files, const Read& read) noexcept;

  /// The call to make, once for each begin() and each advance() without an answer.
  ReadCall call() const noexcept;
  int fd() const noexcept { return lease_.fd; }
  void* tag() const noexcept { return tag_; }

  /// `result` of that call: bytes, or a negative errno. No answer: make another call. Else 0 or an errno, and the
  /// operation is over.
  std::optional<int> advance(int64_t result) noexcept;

  /// Over without having come to an end; no call may be under way.
  void abandon() noexcept { files_->release(lease_); }

 private:
  FileTable* files_ = nullptr;
  FileTable::Lease lease_;
  ReadProgress progress_;
  void* tag_ = nullptr;
};

/// ReadBackend::read_cached, for backends that read through a FileTable.
std::optional<int> read_cached(FileTable& files, const Read& read) noexcept;

}  // namespace feedline::io
