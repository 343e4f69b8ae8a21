// Compares the scanner and resynchronisation with the same rules written without regard to speed.
// covers: io/records/record_scanner.cc io/records/resync.cc
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "io/records/crc32c.h"
#include "io/records/record_scanner.h"
#include "io/records/resync.h"

namespace {

using feedline::io::Crc32cPath;
using feedline::io::RecordScanner;
using feedline::io::RecordView;
using Bytes = std::span<const std::byte>;

uint64_t limit;

uint32_t slow_crc(Bytes bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
  }
  return ~crc;
}

uint64_t number_at(Bytes file, size_t at, size_t size) {
  uint64_t number = 0;
  std::memcpy(&number, file.data() + at, size);
  return number;
}

bool holds(Bytes file, size_t at, size_t size) {
  return feedline::io::mask_crc(slow_crc(file.subspan(at, size))) == number_at(file, at + size, 4);
}

// Returns the end of the valid record at `at`, or nothing.
std::optional<size_t> record_end(Bytes file, size_t at) {
  if (file.size() - at < 16 || !holds(file, at, 8)) return std::nullopt;
  const uint64_t length = number_at(file, at, 8);
  if (length > limit || length > file.size() - at - 16 || !holds(file, at + 12, length)) return std::nullopt;
  return at + 16 + length;
}

void check_scanner(Bytes file, Crc32cPath path) {
  std::array<RecordView, 3> out;
  RecordScanner scanner(file, limit);
  size_t at = 0;
  for (;;) {
    size_t count = 0;
    const auto stop = scanner.next(path, out, count);
    for (size_t i = 0; i < count; i++) {
      const auto end = record_end(file, at);
      if (!end || out[i].data != file.data() + at + 12 || out[i].size != *end - at - 16 ||
          out[i].stored_crc != number_at(file, *end - 4, 4))
        std::abort();
      at = *end;
    }
    if (scanner.position() != at) std::abort();
    if (stop == RecordScanner::Stop::full) continue;
    if (record_end(file, at)) std::abort();  // it stopped at a good record
    if ((stop == RecordScanner::Stop::end) != (at == file.size())) std::abort();
    return;
  }
}

// Returns whether the chain of valid records that begins at `at` reaches the file's end or passes the bound without
// damage.
bool sound_chain(Bytes file, size_t at) {
  const size_t start = at;
  while (at < file.size() && at - start < limit + 16) {
    const auto end = record_end(file, at);
    if (!end) return false;
    at = *end;
  }
  return true;
}

// Returns the end of the record at `at` by only rule 1: the shortest of the lengths that differ from the stated one by
// at most one bit, and whose payload's checksum is right.
std::optional<size_t> corrected_end(Bytes file, size_t at) {
  if (file.size() - at < 12 || holds(file, at, 8)) return std::nullopt;
  const uint64_t stated = number_at(file, at, 8);
  for (uint64_t length = 0; length <= limit && length + 16 <= file.size() - at; length++)
    if (std::popcount(length ^ stated) <= 1 && holds(file, at + 12, length)) return at + 16 + length;
  return std::nullopt;
}

// Every place that resynchronisation returns must be one that the rules allow, and it must not skip a sound one.
void check_resync(Bytes file) {
  feedline::io::Resync resync(
      [&](uint64_t offset, std::span<std::byte> into) { std::memcpy(into.data(), file.data() + offset, into.size()); },
      file.size(), limit);
  for (size_t at = 0; at < file.size();) {
    if (const auto end = record_end(file, at)) {
      at = *end;
      continue;
    }
    if (resync.end_of_record(at) != corrected_end(file, at)) std::abort();
    const uint64_t next = resync.after(at);
    if (next <= at || next > file.size()) std::abort();
    const bool good_header = file.size() - at >= 12 && holds(file, at, 8);
    // If the header is bad, only rule 1 comes before the search. The place that rule 1 returns ends a payload whose
    // checksum is right.
    if (next < file.size() && !good_header && !record_end(file, next)) {
      const uint64_t length = next - at - 16;
      if (next - at < 16 || std::popcount(length ^ number_at(file, at, 8)) > 1 || !holds(file, at + 12, length))
        std::abort();
    }
    // Resynchronisation would have taken a sound chain that begins earlier, unless a good header says that the chain is
    // inside a record.
    if (!good_header)
      for (size_t place = at + 1; place < next; place++)
        if (record_end(file, place) && sound_chain(file, place)) {
          const uint64_t length = next - at - 16;
          const bool rule_one =
              next - at >= 16 && std::popcount(length ^ number_at(file, at, 8)) <= 1 && holds(file, at + 12, length);
          if (!rule_one) std::abort();
        }
    at = next;
  }
}

// Candidates are the good headers of records that fit, wherever the search begins.
void check_candidates(Bytes file) {
  feedline::io::Resync resync(
      [&](uint64_t offset, std::span<std::byte> into) { std::memcpy(into.data(), file.data() + offset, into.size()); },
      file.size(), limit);
  uint64_t from = 0;
  for (size_t at = 0; at < file.size(); at++) {
    const uint64_t left = file.size() - at;
    if (left < 16 || !holds(file, at, 8)) continue;
    const uint64_t length = number_at(file, at, 8);
    if (length > limit || length > left - 16) continue;
    if (resync.candidate(from, at)) std::abort();
    const auto found = resync.candidate(from, at + 1);
    if (!found || found->offset != at || found->size != length + 16) std::abort();
    from = at + 1;
  }
  if (resync.candidate(from, file.size())) std::abort();
}

// The engine cannot guess checksums. So this function corrects those of the frames that the input suggests, as the bits
// of `which` say.
std::vector<std::byte> with_checksums(Bytes bytes, uint8_t which) {
  std::vector<std::byte> file(bytes.begin(), bytes.end());
  const auto mend = [&](size_t at, size_t size) {
    const uint32_t crc = feedline::io::mask_crc(slow_crc(Bytes(file).subspan(at, size)));
    std::memcpy(file.data() + at + size, &crc, 4);
  };
  for (size_t at = 0; file.size() - at >= 16; which = std::rotr(which, 1)) {
    const uint64_t length = number_at(file, at, 8);
    if (length > file.size() - at - 16) {
      at++;
      continue;
    }
    // Corrects records in the payload first, because the outer checksum covers them.
    if (length >= 16 && (which & 4)) {
      const auto inner = with_checksums(Bytes(file).subspan(at + 12, length), static_cast<uint8_t>(which >> 1));
      std::copy(inner.begin(), inner.end(), file.begin() + static_cast<ptrdiff_t>(at + 12));
    }
    mend(at, 8);
    if (which & 1) mend(at + 12, length);
    at += 16 + length;
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  limit = data[0] & 1 ? 64 : 1 << 20;
  const Bytes bytes = std::as_bytes(std::span(data + 2, size - 2));
  const auto file = data[0] & 2 ? with_checksums(bytes, data[1]) : std::vector<std::byte>(bytes.begin(), bytes.end());
  for (const Crc32cPath path : {Crc32cPath::table, Crc32cPath::hardware, Crc32cPath::three_way, Crc32cPath::folding})
    if (feedline::io::supported(path)) check_scanner(file, path);
  check_resync(file);
  check_candidates(file);
  return 0;
}
