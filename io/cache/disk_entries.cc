#include "io/cache/disk_entries.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
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
  EntryFile::Piece piece;
  return known == unknown ? file_.find(entry, true, {&piece, 1}, error) == 1 : known != given_up;
}

std::span<const std::byte> DiskEntries::find(uint64_t entry, std::span<std::byte> scratch) noexcept {
  const uint8_t known = local(entry).load(std::memory_order_acquire);
  if (known == given_up) return {};
  int error = 0;
  EntryFile::Piece piece;
  if (file_.find(entry, is_published(known), {&piece, 1}, error) == 1 && piece.bytes <= scratch.size()) {
    const auto bytes = scratch.first(piece.bytes);
    error = file_.read(piece.offset, bytes);
    if (!error && crc32c(bytes) == piece.crc) {
      note_found(entry);
      return bytes;
    }
    give_up(entry);  // the next run makes the entry again
  }
  if (error) turn_off("cannot be read", error);
  return {};
}

void DiskEntries::note_found(uint64_t entry) noexcept {
  uint8_t before = local(entry).load(std::memory_order_relaxed);
  if (before == unknown) local(entry).compare_exchange_strong(before, found, std::memory_order_relaxed);
}

size_t DiskEntries::find_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> into) noexcept {
  size_t done = 0;
  while (done < sizes.size()) {
    const size_t some = find_some(first + done, sizes.subspan(done), into);
    if (some == 0) break;
    for (size_t i = 0; i < some; i++) into = into.subspan(sizes[done++]);
  }
  return done;
}

// Copies those of the entries that also lie side by side in the file, by one read. If that is only one entry, or if
// anything is wrong, copies the first entry by find(), which then deals with what is wrong. Returns how many entries it
// has copied.
size_t DiskEntries::find_some(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> into) noexcept {
  const auto known = [&](size_t i) { return local(first + i).load(std::memory_order_acquire); };
  const bool published = is_published(known(0));
  size_t count = 0;
  while (count < std::min(sizes.size(), EntryFile::most_at_once) && known(count) != given_up &&
         is_published(known(count)) == published)
    count++;
  std::array<EntryFile::Piece, EntryFile::most_at_once> pieces;
  int error = 0;
  if (count > 1) count = file_.find(first, published, std::span(pieces).first(count), error);
  uint64_t bytes = 0;
  size_t some = 0;
  for (; some < count && pieces[some].bytes == sizes[some] && pieces[some].offset == pieces[0].offset + bytes; some++)
    bytes += sizes[some];
  size_t good = 0;
  if (some > 1 && file_.read(pieces[0].offset, into.first(bytes)) == 0)
    for (auto rest = into; good < some && crc32c(rest.first(sizes[good])) == pieces[good].crc; good++) {
      note_found(first + good);
      rest = rest.subspan(sizes[good]);
    }
  return good > 0 ? good : find(first, into.first(sizes[0])).size() == sizes[0];
}

std::span<std::byte> DiskEntries::claim(uint64_t entry, uint64_t bytes, std::span<std::byte> scratch) noexcept {
  if (off_ || bytes > scratch.size()) return {};
  if (local(entry).load(std::memory_order_acquire) != unknown) return {};
  int error = 0;
  const bool is_mine = file_.claim(entry, 1, error) == 1;
  if (error) turn_off("cannot be changed", error);
  return is_mine ? scratch.first(bytes) : std::span<std::byte>();
}

void DiskEntries::keep(uint64_t entry, std::span<const std::byte> bytes) noexcept {
  const uint64_t size = bytes.size();
  write_claimed(entry, {&size, 1}, bytes);
}

void DiskEntries::keep_run(uint64_t first, std::span<const uint64_t> sizes, std::span<std::byte> bytes) noexcept {
  for (size_t done = 0; done < sizes.size();)
    for (size_t some = keep_some(first + done, sizes.subspan(done), bytes); some > 0; some--)
      bytes = bytes.subspan(sizes[done++]);
}

// Claims and keeps the first of the entries that are empty. Returns how many these are, or 1 if the first entry cannot
// be claimed.
size_t DiskEntries::keep_some(uint64_t first, std::span<const uint64_t> sizes,
                              std::span<const std::byte> bytes) noexcept {
  size_t count = 0;
  while (count < std::min(sizes.size(), EntryFile::most_at_once) &&
         local(first + count).load(std::memory_order_acquire) == unknown)
    count++;
  if (off_ || count == 0) return 1;
  int error = 0;
  count = file_.claim(first, count, error);
  if (error) turn_off("cannot be changed", error);
  if (count > 0) write_claimed(first, sizes.first(count), bytes);
  return std::max<size_t>(count, 1);
}

// Writes entries that this thread has claimed side by side into the file. If that fails, or if there is no room for all
// of them, gives them up.
void DiskEntries::write_claimed(uint64_t first, std::span<const uint64_t> sizes,
                                std::span<const std::byte> bytes) noexcept {
  const uint64_t all = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  int error = 0;
  const auto offset = file_.take(all, error);
  if (offset && !off_) error = file_.write(*offset, bytes.first(all));
  if (offset && !off_ && !error) {
    std::array<EntryFile::Piece, EntryFile::most_at_once> pieces;
    uint64_t at = 0;
    for (size_t i = 0; i < sizes.size(); at += sizes[i++])
      pieces[i] = {*offset + at, sizes[i], crc32c(bytes.subspan(at, sizes[i]))};
    error = file_.set_pieces(first, std::span(pieces).first(sizes.size()));
  }
  if (error) turn_off("cannot be written", error);
  if (!offset || off_) {
    for (size_t i = 0; i < sizes.size(); i++) give_up(first + i);
    return;
  }
  for (size_t i = 0; i < sizes.size(); i++) {
    local(first + i).store(written, std::memory_order_release);
    note_kept(sizes[i]);
  }
  const uint64_t before = unsynced_.fetch_add(all);
  if (before / bytes_of_sync_ == (before + all) / bytes_of_sync_) return;
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
