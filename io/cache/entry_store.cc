#include "io/cache/entry_store.h"

#include <cstring>

namespace feedline::io {

size_t EntryStore::find_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> into) noexcept {
  for (size_t i = 0; i < sizes.size(); i++) {
    const std::span<std::byte> place = into.first(sizes[i]);
    const std::span<const std::byte> found = find(first + i, place);
    if (found.size() != place.size()) return i;
    if (found.data() != place.data()) std::memcpy(place.data(), found.data(), place.size());
    into = into.subspan(place.size());
  }
  return sizes.size();
}

void EntryStore::keep_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> bytes) noexcept {
  for (size_t i = 0; i < sizes.size(); i++) {
    const std::span<std::byte> made = bytes.first(sizes[i]), place = claim(first + i, made.size(), made);
    bytes = bytes.subspan(made.size());
    if (place.empty()) continue;
    if (place.data() != made.data()) std::memcpy(place.data(), made.data(), made.size());
    keep(first + i, place);
  }
}

}  // namespace feedline::io
