// Keeps cache entries in a file on a disk, which the processes of a machine share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include "io/cache/entry_file.h"
#include "io/cache/entry_store.h"

namespace feedline::io {

/// Keeps entries in an EntryFile. Whenever an entry is read, its CRC32C is verified. If the CRC32C is wrong, the entry
/// counts as not found. This process finds an entry as soon as it is written. A thread of the store syncs the new
/// entries, and then makes them valid for other processes. After a failed read, write or sync the store writes nothing
/// more, and logs this in one line. It still finds the entries that are in the file.
class DiskEntries final : public EntryStore {
 public:
  /// Returns how many bytes of memory a store of `entries` entries needs.
  static uint64_t memory_bytes(uint64_t entries) noexcept { return entries; }
  /// The default of bytes_of_sync: entries are synced after every 32 MiB that were written.
  static constexpr uint64_t usual_sync = 32 << 20;

  /// Opens or makes the file as EntryFile does. `memory` must be filled with zeros, have at least
  /// memory_bytes(wanted.entries) bytes, and outlive the store. (A file that another process has made may have fewer
  /// entries than `wanted`.) Throws Error io_error.
  DiskEntries(const std::string& path, uint64_t content, const EntryLayout& wanted, std::span<std::byte> memory,
              uint64_t bytes_of_sync = usual_sync);
  /// Syncs the entries that were written and not yet synced, and makes them valid for other processes.
  ~DiskEntries() override;

  uint64_t entries() const noexcept override { return std::min<uint64_t>(file_.layout().entries, local_.size()); }
  bool has(uint64_t entry) const noexcept override;
  std::span<const std::byte> find(uint64_t entry, std::span<std::byte> scratch) noexcept override;
  std::span<std::byte> claim(uint64_t entry, uint64_t bytes, std::span<std::byte> scratch) noexcept override;
  void keep(uint64_t entry, std::span<const std::byte> bytes) noexcept override;
  void give_up(uint64_t entry) noexcept override;
  size_t find_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> into) noexcept override;
  void keep_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> bytes) noexcept override;

 private:
  /// The state of an entry in this process, in addition to its state in the file:
  /// * unknown: nothing, so the state in the file counts.
  /// * found: this process has found the entry valid in the file, so has() need not look there again.
  /// * written: this process has written the entry, and has not yet synced it.
  /// * syncing: the thread of the store is syncing the entry.
  /// * given_up: this process neither finds nor claims the entry any more.
  enum Local : uint8_t { unknown, found, written, syncing, given_up };

  std::atomic_ref<uint8_t> local(uint64_t entry) const noexcept {
    return std::atomic_ref(*reinterpret_cast<uint8_t*>(&local_[entry]));
  }
  static bool is_published(uint8_t known) noexcept { return known == unknown || known == found; }
  void note_found(uint64_t entry) noexcept;
  size_t find_some(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> into) noexcept;
  size_t keep_some(uint64_t first, std::span<const uint64_t> sizes, std::span<const std::byte> bytes) noexcept;
  void write_claimed(uint64_t first, std::span<const uint64_t> sizes, std::span<const std::byte> bytes) noexcept;
  void sync_when_asked() noexcept;
  void sync() noexcept;
  void turn_off(const char* what, int error) noexcept;

  EntryFile file_;
  const std::span<std::byte> local_;
  const uint64_t bytes_of_sync_;
  std::atomic<bool> off_{false};       // a failure has stopped all further writing
  std::atomic<uint64_t> unsynced_{0};  // bytes of all kept entries; each multiple of bytes_of_sync_ asks for a sync
  static constexpr uint32_t asked_to_end = uint32_t{1} << 31;
  // The number of syncs that were asked for. The destructor sets the bit asked_to_end.
  std::atomic<uint32_t> asked_{0};
  std::thread syncer_;
};

}  // namespace feedline::io
