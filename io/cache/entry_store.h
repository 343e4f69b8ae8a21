// A store of entries: bytes that were expensive to make, kept under a number.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace feedline::io {

/// Entries that are claimed one at a time begin at multiples of this many bytes. Room is allocated in such multiples.
inline constexpr uint64_t entry_alignment = 64;

/// Keeps bytes under the numbers [0, entries()). Each entry is written once and never changes. The store never removes
/// an entry to make room. Thread-safe. No call allocates memory; has() and find() take no lock.
///
/// An entry is empty, claimed by the thread that writes it, valid, or given up. A caller for which find() returns
/// nothing makes the bytes itself, and may claim() the entry and keep() them there.
class EntryStore {
 public:
  virtual ~EntryStore() = default;

  virtual uint64_t entries() const noexcept = 0;

  /// Returns whether an entry is valid. If it must be read from a disk, find() may still find that it is damaged.
  virtual bool has(uint64_t entry) const noexcept = 0;

  /// Returns the bytes of an entry. They lie in the store, or were read into the beginning of `scratch`. Returns an
  /// empty span if the entry is not valid, or if the entry must be read and does not fit into `scratch`.
  virtual std::span<const std::byte> find(uint64_t entry, std::span<std::byte> scratch) noexcept = 0;

  /// Copies entries with neighbouring numbers, from `first` on, to where they lie side by side in `into`. Entry
  /// first + i must have sizes[i] bytes, which is not 0. Stops at the first entry that is not found, or has a different
  /// size. Returns how many entries it has copied. What lies in `into` after these is undefined.
  virtual size_t find_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> into) noexcept;

  /// Claims an empty entry for `bytes` bytes. Returns the memory into which the caller must write them: a place in the
  /// store, or the beginning of `scratch`. keep() or give_up() must follow. Returns an empty span if the entry is not
  /// empty, or if there is no room. Precondition: bytes > 0.
  virtual std::span<std::byte> claim(uint64_t entry, uint64_t bytes, std::span<std::byte> scratch) noexcept = 0;

  /// Makes a claimed entry valid. `bytes` is the span that claim() returned, which the caller has filled.
  virtual void keep(uint64_t entry, std::span<const std::byte> bytes) noexcept = 0;

  /// Claims and keeps those entries with neighbouring numbers, from `first` on, that are empty and for which there is
  /// room. (A store on a disk keeps neighbours only if it has room for all of them.) Entry first + i has the next
  /// sizes[i] bytes of `bytes`, which are not changed. Precondition: no size is 0.
  virtual void keep_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> bytes) noexcept;

  /// Ends a claim without keeping any bytes. The entry cannot be claimed again in this process.
  virtual void give_up(uint64_t entry) noexcept = 0;

  /// Return how many entries this process has stored by keep(), and how many bytes these entries have.
  uint64_t kept_entries() const noexcept { return kept_entries_.load(std::memory_order_relaxed); }
  uint64_t kept_bytes() const noexcept { return kept_bytes_.load(std::memory_order_relaxed); }

 protected:
  void note_kept(uint64_t bytes) noexcept {
    kept_entries_.fetch_add(1, std::memory_order_relaxed);
    kept_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> kept_entries_{0}, kept_bytes_{0};
};

}  // namespace feedline::io
