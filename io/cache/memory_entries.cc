#include "io/cache/memory_entries.h"

#include <algorithm>

#include "base/invariant.h"
#include "base/mul_div.h"

namespace feedline::io {

uint64_t MemoryEntries::table_bytes(uint64_t entries) noexcept {
  return round_up(entries * sizeof(Row), entry_alignment);
}

// `memory` is filled with zeros, and a Row of zeros is an empty entry. So no row needs to be written here. Writing
// would make the whole table resident, because the system provides memory when it is first written.
MemoryEntries::MemoryEntries(uint64_t entries, std::span<std::byte> memory) {
  check_invariant(table_bytes(entries) <= memory.size(), "a table of {} entries in {} bytes", entries, memory.size());
  table_ = {reinterpret_cast<Row*>(memory.data()), entries};
  data_ = memory.subspan(table_bytes(entries));
}

bool MemoryEntries::has(uint64_t entry) const noexcept {
  return std::atomic_ref(table_[entry].state).load(std::memory_order_acquire) == valid;
}

std::span<const std::byte> MemoryEntries::find(uint64_t entry, std::span<std::byte>) noexcept {
  if (!has(entry)) return {};
  const Row& row = table_[entry];
  return data_.subspan(row.offset, row.bytes);
}

std::span<std::byte> MemoryEntries::claim(uint64_t entry, uint64_t bytes, std::span<std::byte>) noexcept {
  Row& row = table_[entry];
  const std::atomic_ref state(row.state);
  uint32_t before = empty;
  if (!state.compare_exchange_strong(before, claimed, std::memory_order_acquire)) return {};
  uint64_t place = next_.load(std::memory_order_relaxed);
  do
    if (bytes > data_.size() - place) {
      state.store(empty, std::memory_order_release);
      return {};
    }
  while (!next_.compare_exchange_weak(place, std::min(data_.size(), place + round_up(bytes, entry_alignment)),
                                      std::memory_order_relaxed));
  row.offset = place;
  row.bytes = bytes;
  return data_.subspan(place, bytes);
}

void MemoryEntries::keep(uint64_t entry, std::span<const std::byte> bytes) noexcept {
  std::atomic_ref(table_[entry].state).store(valid, std::memory_order_release);
  note_kept(bytes.size());
}

void MemoryEntries::give_up(uint64_t entry) noexcept {
  std::atomic_ref(table_[entry].state).store(given_up, std::memory_order_release);
}

}  // namespace feedline::io
