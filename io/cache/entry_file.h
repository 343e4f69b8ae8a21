// The file on a disk in which the ranks of a machine share cache entries.
//
//   header    4096 bytes: magic, digest of the content, number of entries, bytes of data, CRC32C of all these; and how
//             many bytes of data are allocated
//   table     a row of 32 bytes for each entry: state, CRC32C of the data, place, size, CRC32C of the row
//   data      from the next multiple of 4096 on; the file grows as entries are written. Entries that are written at
//             once have neighbouring numbers, and lie side by side
//
// Numbers are little-endian. A row becomes valid only after the data was synced. So after a crash of the machine a
// valid row has its data. If a disk has lost data that it reported as synced, the CRC32C shows it. No part of the file
// is mapped into memory. If a disk is full or fails, or if another program cuts the file short, a system call fails;
// access to a mapping would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/mutex.h"

namespace feedline::io {

/// The capacity of a file of entries.
struct EntryLayout {
  uint64_t entries = 0;
  uint64_t data_bytes = 0;  // the maximum number of bytes of all entries together
  bool operator==(const EntryLayout&) const = default;
};

/// An open file of entries. Each process locks the file as long as it has it open, so that no other process removes it.
/// Thread-safe, except for construction and destruction.
class EntryFile {
 public:
  static constexpr std::string_view suffix = ".feedline-cache";

  /// Returns how many bytes the header and a table of `entries` entries take.
  static uint64_t table_bytes(uint64_t entries) noexcept;
  /// Returns the layout of the file at `path`. Returns nullopt if no such file exists, or if it is incomplete or was
  /// made for content with a different digest. Does not throw.
  static std::optional<EntryLayout> layout_of(const std::string& path, uint64_t content) noexcept;
  /// Returns the largest size in bytes that a new file at `path` can have after remove_unused(path, prefix). The folder
  /// of `path` need not exist yet. Throws Error io_error, also if this folder cannot be made or written.
  static uint64_t free_bytes(const std::string& path, std::string_view prefix);
  /// Removes the files of entries in the folder of `path` whose names begin with `prefix` and which no process has
  /// open, except `path` itself. Does not throw.
  static void remove_unused(const std::string& path, std::string_view prefix) noexcept;

  /// Opens the file. Makes it with the layout `wanted` if no such file exists, or if it is incomplete or was made for
  /// content with a different digest. If no other process has the file open, entries whose writer was killed become
  /// empty again. Throws Error io_error.
  EntryFile(std::string path, uint64_t content, const EntryLayout& wanted);

  const std::string& path() const noexcept { return path_; }
  const EntryLayout& layout() const noexcept { return layout_; }

  /// The part of the file's data that holds the bytes of an entry.
  struct Piece {
    uint64_t offset = 0, bytes = 0;
    uint32_t crc = 0;  // CRC32C of the bytes
  };
  /// The maximum number of entries that one call finds, claims or describes.
  static constexpr size_t most_at_once = 64;
  /// Finds the pieces of the entries with the numbers from `first` on, until one is not there. If `published` is true,
  /// only entries that are valid for all processes count. If it is false, entries that this process has kept and not
  /// yet published count, too. Returns how many pieces it has found. If the rows of the table cannot be read, sets
  /// `error` to an errno, which is ENODATA if the file ends before the end of these rows. Otherwise sets `error` to 0.
  /// Precondition: pieces.size() <= most_at_once.
  size_t find(uint64_t first, bool published, std::span<Piece> pieces, int& error) const noexcept;
  /// Claims the entries with the numbers from `first` on, at most `count`, until one is not empty. No other thread of
  /// any process can then claim them. Returns how many it has claimed. If a system call fails, sets `error` to its errno
  /// and returns 0. Otherwise sets `error` to 0. Precondition: count <= most_at_once.
  size_t claim(uint64_t first, size_t count, int& error) noexcept;
  /// Makes a claimed or damaged entry empty again.
  void release(uint64_t entry) noexcept;
  /// Allocates `bytes` bytes of the file's data, which no other thread of any process can then allocate. Returns their
  /// offset, or nullopt if not enough bytes are left. If a system call fails, sets `error` to its errno and returns
  /// nullopt. Otherwise sets `error` to 0.
  std::optional<uint64_t> take(uint64_t bytes, int& error) noexcept;
  /// Writes into the rows of claimed entries, from `first` on, where their bytes are. Returns 0 or an errno.
  /// Precondition: pieces.size() <= most_at_once.
  int set_pieces(uint64_t first, std::span<const Piece> pieces) noexcept;
  /// Makes a claimed entry valid for all processes. Its bytes must have been synced. Returns 0 or an errno.
  int publish(uint64_t entry) noexcept;

  /// Read or write all bytes at an offset of the data, and sync what was written. Return 0 or an errno.
  int read(uint64_t offset, std::span<std::byte> into) const noexcept;
  int write(uint64_t offset, std::span<const std::byte> bytes) noexcept;
  int sync() noexcept;

 private:
  struct Header;
  struct Row;
  static std::optional<EntryLayout> layout_in(int fd, uint64_t content) noexcept;
  class Exclusive;
  bool open();
  void create(const EntryLayout& wanted);
  void recover() const;
  [[noreturn]] void fail(const char* what, int error) const;
  int fd() const noexcept { return descriptor_.fd(); }

  const std::string path_;
  const uint64_t content_;
  EntryLayout layout_;
  Descriptor descriptor_;
  Mutex mutex_;  // held while an Exclusive of this process exists
};

}  // namespace feedline::io
