// Keeps cache entries in memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "io/cache/entry_store.h"

namespace feedline::io {

/// Keeps entries in memory that the caller provides. The memory holds a table, and after it the entries' bytes. Entries
/// are placed there in the order in which they are claimed. The place of an entry that is given up is not used again.
class MemoryEntries final : public EntryStore {
 public:
  /// Returns the size in bytes of a table of `entries` entries.
  static uint64_t table_bytes(uint64_t entries) noexcept;

  /// Uses `memory`, which must be filled with zeros, be aligned to entry_alignment, and outlive the store. It must have
  /// room for the table.
  MemoryEntries(uint64_t entries, std::span<std::byte> memory);

  uint64_t entries() const noexcept override { return table_.size(); }
  bool has(uint64_t entry) const noexcept override;
  std::span<const std::byte> find(uint64_t entry, std::span<std::byte> scratch) noexcept override;
  std::span<std::byte> claim(uint64_t entry, uint64_t bytes, std::span<std::byte> scratch) noexcept override;
  void keep(uint64_t entry, std::span<const std::byte> bytes) noexcept override;
  void give_up(uint64_t entry) noexcept override;

 private:
  enum State : uint32_t { empty, claimed, valid, given_up };
  struct Row {
    uint32_t state;  // accessed by std::atomic_ref; the other members belong to the thread that has claimed the entry
    uint64_t offset, bytes;
  };

  std::span<Row> table_;
  std::span<std::byte> data_;
  std::atomic<uint64_t> next_{0};  // bytes of data_ that are allocated
};

}  // namespace feedline::io
