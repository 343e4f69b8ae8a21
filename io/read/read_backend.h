// Asynchronous reads of files into memory that the caller owns.
//
// A backend has its own thread or threads. The caller gives it a list of files at the start, and names a file by its
// number in this list. The backend opens files when they are first read, and keeps a bounded number of descriptors. A
// read completes either with the whole range or with an error. The backend itself handles short reads, EINTR, EAGAIN
// and O_DIRECT's alignment.
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

/// The alignment of buffers. The first byte of a read lands in its buffer at offset % block_bytes (see Read).
inline constexpr size_t block_bytes = 4096;

/// A file, and the version of its content.
struct FileId {
  std::string uri;       // a local path, or the name of a file in a store (io/read/source.h)
  uint64_t size = 0;     // bytes
  uint64_t version = 0;  // changes when the content does: for a local file, the mtime in nanoseconds
  // The ctime in nanoseconds. Unlike the mtime, it also changes when a different file with the same mtime takes the
  // place of this file.
  uint64_t changed = 0;
  // The device number and the inode number. Paths that name the same file have the same two numbers. If `inode` is 0,
  // the two numbers are not known.
  uint64_t device = 0, inode = 0;
};

/// Returns the FileId of a local file. Throws Error io_error if stat(2) fails or the file is not a regular file.
FileId stat_file(std::string path);

/// A range of a file to be read, and where its bytes go.
struct Read {
  uint32_t file = 0;                // the number in the backend's list of files
  uint64_t offset = 0, length = 0;  // bytes; the range lies inside the file and has at least one byte
  /// Memory of the caller. The memory must stay valid until the read has completed, be aligned to block_bytes, and have
  /// at least capacity_for(offset, length) bytes. The bytes of the range are placed at buffer + offset % block_bytes,
  /// for direct and for buffered reads alike. The other bytes inside the capacity may be overwritten.
  std::byte* buffer = nullptr;
  void* tag = nullptr;  // given to ReadDone

  /// Returns the bytes of buffer that a read needs.
  static size_t capacity_for(uint64_t offset, uint64_t length) noexcept {
    return (offset % block_bytes + length + block_bytes - 1) / block_bytes * block_bytes;
  }
};

/// The completion callback. The backend calls it once for each submitted read, on one of its threads; after stop(), on
/// the thread that submits. `error` is 0 or an errno:
/// * ENODATA: the file ends before the range does, because it has become shorter.
/// * ESTALE: the size or version of the file is no longer that of its FileId.
/// * EOPNOTSUPP: O_DIRECT is `on`, and the file system refuses it.
/// * ECANCELED: the backend was stopped. Submit nothing more.
///
/// The callback must not block or throw. It may call submit().
using ReadDone = std::function<void(void* tag, int error)>;

/// Returns a message for an `error` of ReadDone: what happened and, if that helps, what to do.
std::string read_error_message(int error);

/// Reads files. See the top of this file.
class ReadBackend {
 public:
  /// Stops the backend, as stop() does.
  virtual ~ReadBackend() = default;

  /// Starts the reads, or queues them. Thread-safe. Does not block on I/O and never fails: failures arrive as
  /// completions.
  virtual void submit(std::span<const Read> reads) = 0;

  /// Reads the range immediately, on the caller's thread, from the page cache or from a file system in memory. It does
  /// not wait for a disk, with two exceptions: it may have to open the file, and memory may have been swapped out.
  /// Returns 0 or an errno, with the meanings that ReadDone has. Returns nothing if the page cache does not hold the
  /// whole range, if O_DIRECT may be used, or if too many other calls are under way. Then a part of the buffer may have
  /// been written, and the caller must submit the read. Thread-safe.
  virtual std::optional<int> read_cached(const Read& read) noexcept = 0;
  /// Returns how many callers of read_cached() are waiting for a file to be opened. They may wait for a long time,
  /// because a disk or a network may not answer. Thread-safe.
  virtual int opening() const noexcept { return 0; }

  /// Cancels the reads that it can cancel, and waits for the others. It waits for ever if a disk never answers. When it
  /// returns, every read that was submitted before has completed, nothing touches the buffers any more, and further
  /// submits complete with ECANCELED at once. May be called several times, on any thread except inside a completion.
  virtual void stop() = 0;

  /// Returns a description of this backend, for people: "io_uring (O_DIRECT, registered buffers)", or "pread (page
  /// cache; io_uring_setup: Operation not permitted)".
  virtual std::string description() const = 0;
};

/// Options for make_read_backend().
struct BackendOptions : IoOptions {
  unsigned depth = 64;  // the largest number of reads in flight, at least 1; further reads wait in a queue
  /// The memory in which all buffers lie, for registration with io_uring. May be empty.
  std::span<std::byte> memory = {};
  /// The number of reads that are started before `memory` is registered. Registration makes all of it resident. A feed
  /// whose files lie in the page cache submits few reads, and needs no registration.
  uint64_t register_after_reads = 0;
};

/// Makes a backend for `files`. With `automatic` it uses pread if io_uring is not available, and logs the reason once,
/// at level info. Throws Error io_error, which says what to do, if io_uring is asked for and is not available, or if no
/// thread can be started.
std::unique_ptr<ReadBackend> make_read_backend(std::vector<FileId> files, const BackendOptions& options, ReadDone done);

}  // namespace feedline::io
