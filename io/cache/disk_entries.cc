#include "io/cache/disk_entries.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/invariant.h"
#include "base/log.h"
#include "base/thread.h"
#include "feedline/error.h"
#include "io/records/crc32c.h"

namespace feedline::io {

DiskEntries::DiskEntries(const std::string& path, uint64_t content, const EntryLayout& wanted,
                         std::span<std::byte> memory, uint64_t bytes_of_sync)
    : file_(path, content, wanted), local_(memory), bytes_of_sync_(bytes_of_sync) {
  check_invariant(memory_bytes(wanted.entries) <= memory.size(), "{} entries in {} bytes", wanted.entries,
                  memory.size());
  try {
    syncer_ = start_thread("feedline cache", [this] { sync_when_asked(); });
  } catch (const std::system_error& error) {
    throw Error(Category::io_error,
                fmt::format("the thread that syncs the cache file cannot be started: {}", error.what()),
                Place::of_file(path));
  }
}

DiskEntries::~DiskEntries() {
  asked_.fetch_or(asked_to_end);
  asked_.notify_one();
  syncer_.join();
}

bool DiskEntries::has(uint64_t entry) const noexcept {
  const uint8_t known = local(entry).load(std::memory_order_acquire);
  int error = 0;  // is ignored here, because find() reports it
  return known == unknown ? file_.find(entry, true, error).has_value() : known != given_up;
}

std::span<const std::byte> DiskEntries::find(uint64_t entry, std::span<std::byte> scratch) noexcept {
  const uint8_t known = local(entry).load(std::memory_order_acquire);
  if (known == given_up) return {};
  int error = 0;
  const auto piece = file_.find(entry, known == unknown, error);
  if (piece && piece->bytes <= scratch.size()) {
    const auto bytes = scratch.first(piece->bytes);
    error = file_.read(piece->offset, bytes);
    if (!error && crc32c(bytes) == piece->crc) return bytes;
    give_up(entry);  // the next run makes the entry again
  }
  if (error) turn_off("cannot be read", error);
  return {};
}

std::span<std::byte> DiskEntries::claim(uint64_t entry, uint64_t bytes, std::span<std::byte> scratch) noexcept {
  if (off_ || bytes > scratch.size()) return {};
  if (local(entry).load(std::memory_order_acquire) != unknown) return {};
  int error = 0;
  const bool is_mine = file_.claim(entry, error);
  if (error) turn_off("cannot be changed", error);
  return is_mine ? scratch.first(bytes) : std::span<std::byte>();
}

void DiskEntries::keep(uint64_t entry, std::span<const std::byte> bytes) noexcept {
  int error = 0;
  const auto offset = file_.take(bytes.size(), error);
  if (offset && !off_) error = file_.write(*offset, bytes);
  if (offset && !off_ && !error) error = file_.set_piece(entry, {*offset, bytes.size(), crc32c(bytes)});
  if (error) turn_off("cannot be written", error);
  if (!offset || off_) return give_up(entry);
  local(entry).store(written, std::memory_order_release);
  note_kept(bytes.size());
  const uint64_t before = unsynced_.fetch_add(bytes.size());
  if (before / bytes_of_sync_ == (before + bytes.size()) / bytes_of_sync_) return;
  asked_++;
  asked_.notify_one();
}

void DiskEntries::give_up(uint64_t entry) noexcept {
  local(entry).store(given_up, std::memory_order_release);
  file_.release(entry);
}

void DiskEntries::sync_when_asked() noexcept {
  uint32_t done = 0;
  while (!(done & asked_to_end)) {
    asked_.wait(done);
    done = asked_;
    sync();
  }
}

// Syncs the entries that were written before this call, and then makes them valid. (This may also sync entries that are
// written during the call. They become valid only by a later call, which syncs them again.)
void DiskEntries::sync() noexcept {
  bool any = false;
  for (uint64_t entry = 0; entry < entries(); entry++) {
    uint8_t before = written;
    any |= local(entry).compare_exchange_strong(before, syncing, std::memory_order_acq_rel);
  }
  if (!any || off_) return;
  if (const int error = file_.sync()) return turn_off("cannot be synced", error);
  for (uint64_t entry = 0; entry < entries(); entry++) {
    if (local(entry).load(std::memory_order_acquire) != syncing) continue;
    if (const int error = file_.publish(entry)) return turn_off("cannot be written", error);
    local(entry).store(unknown, std::memory_order_release);
  }
}

void DiskEntries::turn_off(const char* what, int error) noexcept {
  if (off_.exchange(true)) return;
  log_warning(fmt::format("cache: {} {}: {}; what this file holds already is still used, but nothing more is added",
                          file_.path(), what, error == ENODATA ? "the file has become shorter" : std::strerror(error)));
}

}  // namespace feedline::io
