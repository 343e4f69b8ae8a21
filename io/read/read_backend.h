// Asynchronous reads of files into memory that the caller owns.
//
// A backend has its own thread or threads. Files are named by their number in the list given at the start; it opens
// them when they are first read and keeps a bounded number of descriptors. A completion is either the whole range or
// an error: short reads, EINTR, EAGAIN and O_DIRECT's alignment are dealt with inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "feedline/io_options.h"

namespace feedline::io {

/// Buffers start at a multiple of this, and reads keep their offset's remainder: see Read.
inline constexpr size_t block_bytes = 4096;

/// Remote files fit: a URI, a size and a tag that changes with the content (mtime in ns for local ones).
struct FileId {
  std::string uri;
  uint64_t size = 0;
  uint64_t version = 0;
};

/// Local path -> FileId. Throws Error io_error when it cannot be, or is no regular file.
FileId stat_file(std::string path);

struct Read {
  uint32_t file = 0;
  uint64_t offset = 0, length = 0;  // inside the file, at least one byte
  /// Aligned to block_bytes; its capacity is at least capacity_for(offset, length). The range lands at
  /// buffer + offset % block_bytes, whatever way it is read; bytes around it, inside the capacity, are clobbered.
  std::byte* buffer = nullptr;
  void* tag = nullptr;  // handed back

  static size_t capacity_for(uint64_t offset, uint64_t length) noexcept {
    return (offset % block_bytes + length + block_bytes - 1) / block_bytes * block_bytes;
  }
};

/// Called once for each submitted read, on a thread of the backend (after stop(), on the submitter's), with 0 or an
/// errno. ENODATA: the file ended before the range did (it shrank); ESTALE: its size or version is no longer that of
/// its FileId; EOPNOTSUPP: O_DIRECT is asked for and refused; ECANCELED: stopped, so submit nothing more.
/// Must not block or throw; may call submit().
using ReadDone = std::function<void(void* tag, int error)>;

/// An error of ReadDone for people: what happened and, where that helps, what to do.
std::string read_error_message(int error);

class ReadBackend {
 public:
  virtual ~ReadBackend() = default;  // stops

  /// Thread-safe, does not block on I/O, never fails: failures arrive as completions.
  virtual void submit(std::span<const Read> reads) = 0;

  /// Reads what the page cache holds at once, on the caller's thread: no disk is waited for. 0 or an errno, as ReadDone
  /// has them; nothing: it is not all there (or read past the cache), submit it. Thread-safe; of the range some may
  /// have been written.
  virtual std::optional<int> read_cached(const Read& read) noexcept = 0;

  /// Cancels what it can and waits for the rest (a read that the disk never answers is waited for): when it returns,
  /// every read submitted before has completed, nothing touches the buffers any more, and further submits complete with
  /// ECANCELED at once. Idempotent; any thread but a completion's.
  virtual void stop() = 0;

  /// For people: "io_uring (O_DIRECT, registered buffers)", "pread (page cache; io_uring_setup: Operation not
  /// permitted)".
  virtual std::string description() const = 0;
};

struct BackendOptions : IoOptions {
  unsigned depth = 64;               // reads in flight, at least 1; more are queued
  std::span<std::byte> memory = {};  // where all buffers lie, for registration; may be empty
  // So many reads come before that, as it makes all of `memory` resident: what the page cache has needs none of it.
  uint64_t registered_behind = 0;
};

/// automatic takes pread where io_uring cannot be had, and logs the reason once, as info. Throws Error io_error where a
/// backend is asked for by name and cannot be had, or no thread can be started; it says what to do.
std::unique_ptr<ReadBackend> make_read_backend(std::vector<FileId> files, const BackendOptions& options, ReadDone done);

}  // namespace feedline::io
