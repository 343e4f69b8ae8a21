// Entries of a cache that are kept as a disk keeps them: find() and claim() use the caller's memory.
#pragma once

#include <cstring>
#include <map>
#include <string>

#include "io/cache/entry_store.h"

namespace feedline::test {

class ScratchEntries final : public io::EntryStore {
 public:
  explicit ScratchEntries(uint64_t entries) : entries_(entries) {}

  uint64_t entries() const noexcept override { return entries_; }
  bool has(uint64_t entry) const noexcept override { return kept.contains(entry); }
  std::span<const std::byte> find(uint64_t entry, std::span<std::byte> scratch) noexcept override {
    const auto found = kept.find(entry);
    if (found == kept.end() || found->second.empty() || found->second.size() > scratch.size()) return {};
    std::memcpy(scratch.data(), found->second.data(), found->second.size());
    return scratch.first(found->second.size());
  }
  std::span<std::byte> claim(uint64_t entry, uint64_t bytes, std::span<std::byte> scratch) noexcept override {
    return kept.contains(entry) || bytes > scratch.size() ? std::span<std::byte>() : scratch.first(bytes);
  }
  void keep(uint64_t entry, std::span<const std::byte> bytes) noexcept override {
    kept[entry].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    note_kept(bytes.size());
  }
  void give_up(uint64_t) noexcept override {}

  std::map<uint64_t, std::string> kept;  // a test may change it

 private:
  const uint64_t entries_;
};

}  // namespace feedline::test
