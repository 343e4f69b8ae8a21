#include "io/cache/entry_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/mul_div.h"
#include "base/syscall_hooks.h"
#include "io/cache/entry_store.h"
#include "io/file.h"
#include "io/records/crc32c.h"
#include "io/syscall_ops.h"

namespace feedline::io {
namespace {

namespace fs = std::filesystem;

using OpenCacheOp = HookedCall<"open a cache", EACCES>;
using WriteCacheOp = HookedCall<"write to a cache", ENOSPC>;
using ShortWriteCacheOp = HookedCall<"write short to a cache", 1>;
using ReadCacheOp = HookedCall<"read from a cache", EIO>;
using SyncCacheOp = HookedCall<"fdatasync of a cache", EIO>;
using LockCacheOp = HookedCall<"lock of a cache", ENOLCK>;

constexpr uint64_t page = 4096;
constexpr char magic[] = "feedcch1";
constexpr int most_tries = 100;

enum State : uint32_t { empty, claimed, valid };

/// The two bytes of the file that processes lock. Locks of different bytes do not conflict. flock() is not used,
/// because on NFS it is a lock of the whole file, which would conflict with the locks of both bytes.
enum LockedByte : off_t { claiming, using_file };

/// Locks or unlocks a byte for the open file (fcntl(2), "Open file description locks"). `type` is F_RDLCK, F_WRLCK or
/// F_UNLCK. If the open file already has a lock of this byte, that lock is changed in one step. The kernel releases the
/// locks if the process dies. Returns 0 or an errno.
int lock(int fd, LockedByte byte, short type, bool waits) noexcept {
  if (const int error = type == F_UNLCK ? 0 : injected<LockCacheOp>()) return error;
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  while (fcntl(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &range) != 0)
    if (errno != EINTR) return errno;
  return 0;
}

// Calls `call(done)`, which transfers bytes after the first `done` ones, until `size` bytes have been transferred.
// Returns 0 or an errno; ENODATA means that the file ends too early.
template <typename Call>
int transfer(size_t size, Call call) noexcept {
  for (size_t done = 0; done < size;) {
    const ssize_t got = call(done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == ENODATA ? EIO : errno;  // for the kernel, ENODATA is a bad sector
    if (got == 0) return ENODATA;
    done += static_cast<size_t>(got);
  }
  return 0;
}

int write_all(int fd, uint64_t at, std::span<const std::byte> bytes) noexcept {
  return transfer(bytes.size(), [&](size_t done) -> ssize_t {
    if (const int error = injected<WriteCacheOp>()) return errno = error, -1;
    size_t size = bytes.size() - done;
    if (injected<ShortWriteCacheOp>()) size = (size + 1) / 2;
    return pwrite(fd, bytes.data() + done, size, static_cast<off_t>(at + done));
  });
}

int read_all(int fd, uint64_t at, std::span<std::byte> into) noexcept {
  return transfer(into.size(), [&](size_t done) -> ssize_t {
    if (const int error = injected<ReadCacheOp>()) return errno = error, -1;
    return pread(fd, into.data() + done, into.size() - done, static_cast<off_t>(at + done));
  });
}

}  // namespace

struct EntryFile::Header {
  char magic[8];
  uint64_t content, entries, data_bytes;
  uint32_t crc;  // CRC32C of the members before it
  uint32_t unused[23];
  uint64_t next;  // how many bytes of data are allocated

  static Header of(uint64_t content, const EntryLayout& layout) {
    Header header{};
    std::memcpy(header.magic, io::magic, sizeof header.magic);
    header.content = content;
    header.entries = layout.entries;
    header.data_bytes = layout.data_bytes;
    header.crc = header.sum();
    return header;
  }
  uint32_t sum() const noexcept { return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Header, crc))); }
  bool is_of(uint64_t of) const noexcept {
    constexpr uint64_t most = uint64_t{1} << 48;  // so that no sum overflows
    return std::memcmp(magic, io::magic, sizeof magic) == 0 && crc == sum() && content == of && entries < most &&
           data_bytes < most;
  }
};

struct EntryFile::Row {
  uint32_t state;
  uint32_t crc;
  uint64_t offset, bytes;
  uint32_t check;  // CRC32C of the entry's number and of crc, offset and bytes
  uint32_t unused;

  uint32_t sum(uint64_t entry) const noexcept {
    const uint64_t all[] = {entry, crc, offset, bytes};
    return crc32c(std::as_bytes(std::span(all)));
  }
  // Returns whether this row belongs to `entry` and has not changed since it was written. A disk or another program may
  // have changed it.
  bool is_of(uint64_t entry, const EntryLayout& layout) const noexcept {
    return check == sum(entry) && bytes <= layout.data_bytes && offset <= layout.data_bytes - bytes;
  }
  static uint64_t place(uint64_t entry) noexcept { return page + entry * sizeof(Row); }
};

namespace {

template <typename T>
int read_value(int fd, uint64_t at, T& value) noexcept {
  return read_all(fd, at, std::as_writable_bytes(std::span(&value, 1)));
}
template <typename T>
int write_value(int fd, uint64_t at, const T& value) noexcept {
  return write_all(fd, at, std::as_bytes(std::span(&value, 1)));
}

}  // namespace

/// Holds the exclusive right to claim an entry or to allocate bytes of data. Only one thread of all processes can hold
/// it at a time.
class EntryFile::Exclusive {
 public:
  explicit Exclusive(EntryFile& file) noexcept
      : lock_(file.mutex_), fd_(file.fd()), error_(lock(fd_, claiming, F_WRLCK, true)) {}
  ~Exclusive() {
    if (!error_) lock(fd_, claiming, F_UNLCK, true);
  }
  int error() const noexcept { return error_; }

 private:
  const Lock lock_;
  const int fd_;
  const int error_;
};

uint64_t EntryFile::table_bytes(uint64_t entries) noexcept {
  static_assert(sizeof(Header) <= page && sizeof(Row) == 32);
  return page + round_up(entries * sizeof(Row), page);
}

std::optional<EntryLayout> EntryFile::layout_in(int fd, uint64_t content) noexcept {
  Header header{};
  struct stat status {};
  const bool is_whole = read_all(fd, 0, std::as_writable_bytes(std::span(&header, 1))) == 0 && header.is_of(content) &&
                        fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_size) >= table_bytes(header.entries);
  return is_whole ? std::optional(EntryLayout{header.entries, header.data_bytes}) : std::nullopt;
}

std::optional<EntryLayout> EntryFile::layout_of(const std::string& path, uint64_t content) noexcept {
  // Without O_NONBLOCK, opening a FIFO that has no writer would block for ever. O_NOFOLLOW refuses symbolic links, as
  // EntryFile::open() does.
  const Descriptor opened(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return opened ? layout_in(opened.fd(), content) : std::nullopt;
}

namespace {

// Calls `visit(file, status)` for each file that remove_unused(path, prefix) removes, and holds the lock of the file
// during the call.
template <typename Visit>
void for_each_unused(const std::string& path, std::string_view prefix, Visit visit) noexcept {
  std::error_code error;
  for (auto entry = fs::directory_iterator(fs::path(path).parent_path(), error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(prefix) || !name.ends_with(EntryFile::suffix) || entry->path() == path) continue;
    const Descriptor opened(::open(entry->path().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    if (!opened) continue;
    struct stat status {
    }, named{};
    // A new file may have this name by now, if another process removed the opened file before it was locked here.
    if (lock(opened.fd(), using_file, F_WRLCK, false) == 0 && fstat(opened.fd(), &status) == 0 &&
        lstat(entry->path().c_str(), &named) == 0 && status.st_ino == named.st_ino && status.st_dev == named.st_dev)
      visit(entry->path().c_str(), status);
  }
}

}  // namespace

uint64_t EntryFile::free_bytes(const std::string& path, std::string_view prefix) {
  const fs::path folder = fs::path(path).parent_path();
  fs::path existing = folder;
  std::error_code error;
  while (!existing.empty() && existing != existing.parent_path() && !fs::exists(existing, error))
    existing = existing.parent_path();
  if (!fs::is_directory(existing, error)) throw io_failure(folder, "the folder cannot be made", ENOTDIR);
  int failure = access(existing.c_str(), W_OK | X_OK) != 0 ? errno : 0;
  if (failure) throw io_failure(folder, "the folder cannot be written", failure);
  struct statvfs status {};
  failure = injected<StatOp>();
  if (!failure && statvfs(existing.c_str(), &status) != 0) failure = errno;
  if (failure) throw io_failure(folder, "its free space cannot be determined", failure);
  uint64_t bytes = uint64_t{status.f_bavail} * status.f_frsize;
  constexpr uint64_t block = 512;  // the unit of st_blocks
  for_each_unused(path, prefix,
                  [&](const char*, const struct stat& of) { bytes += block * static_cast<uint64_t>(of.st_blocks); });
  return bytes;
}

void EntryFile::remove_unused(const std::string& path, std::string_view prefix) noexcept {
  for_each_unused(path, prefix, [](const char* file, const struct stat&) { unlink(file); });
}

EntryFile::EntryFile(std::string path, uint64_t content, const EntryLayout& wanted)
    : path_(std::move(path)), content_(content) {
  std::error_code refused;  // opening the file reports the error
  fs::create_directories(fs::path(path_).parent_path(), refused);
  for (int i = 0; i < most_tries; i++) {
    const bool alone = open();
    struct stat status {};
    if (fstat(fd(), &status) != 0) fail("cannot be looked at", errno);
    const bool was_removed = status.st_nlink == 0, is_whole = layout_in(fd(), content_).has_value();
    if (!was_removed && (is_whole || alone)) {
      if (!is_whole) create(wanted);
      const auto layout = layout_in(fd(), content_);
      if (!layout) fail("was changed by another program", EBUSY);
      layout_ = *layout;
      if (alone) recover();
      if (alone)
        if (const int error = lock(fd(), using_file, F_RDLCK, true)) fail("cannot be locked", error);
      return;
    }
    descriptor_ = {};  // another process has removed it, or was killed while it made it
  }
  fail("is damaged, and another process has this file open; remove the file", EBUSY);
}

void EntryFile::fail(const char* what, int error) const { throw io_failure(path_, what, error); }

// Opens and locks the file. Returns true if no other process has the file open.
bool EntryFile::open() {
  int error = injected<OpenCacheOp>();
  if (!error) {
    do descriptor_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    while (!descriptor_ && errno == EINTR);
    if (!descriptor_) error = errno;
  }
  if (error) fail("cannot be opened", error);
  if (lock(fd(), using_file, F_WRLCK, false) == 0) return true;
  // If another process is making the file at this moment, this waits until the file is complete.
  if (const int refused = lock(fd(), using_file, F_RDLCK, true)) fail("cannot be locked", refused);
  return false;
}

// Writes the table first and the header last, so that a file with a header is whole. Until then the header is zeros.
void EntryFile::create(const EntryLayout& wanted) {
  std::array<char, sizeof magic - 1> first{};
  const int unread = read_all(fd(), 0, std::as_writable_bytes(std::span(first)));
  constexpr std::array<char, sizeof magic - 1> none{};
  if (unread != ENODATA && (unread != 0 || (first != none && std::memcmp(first.data(), magic, first.size()) != 0)))
    fail("is not a cache file of feedline, and is left unchanged; set a different cache.dir",
         unread != 0 ? unread : EEXIST);
  if (ftruncate(fd(), 0) != 0) fail("cannot be emptied", errno);
  static constexpr std::array<std::byte, 16 * page> zeros{};
  // Bound may be equal, farther: both sides are whole pages, and a write of no bytes does nothing.
  for (uint64_t at = page; at < table_bytes(wanted.entries); at += zeros.size()) {
    const auto block = std::span(zeros).first(std::min<uint64_t>(zeros.size(), table_bytes(wanted.entries) - at));
    if (const int error = write_all(fd(), at, block)) fail("cannot be written", error);
  }
  std::array<std::byte, page> block{};
  const Header header = Header::of(content_, wanted);
  std::memcpy(block.data(), &header, sizeof header);
  if (const int error = write_all(fd(), 0, block)) fail("cannot be written", error);
}

// Frees the entries that were claimed by processes that were killed, and the room after the last valid entry.
void EntryFile::recover() const {
  uint64_t next = 0;
  std::array<Row, 16 * page / sizeof(Row)> rows;
  for (uint64_t first = 0; first < layout_.entries; first += rows.size()) {
    const auto some = std::span(rows).first(std::min<uint64_t>(rows.size(), layout_.entries - first));
    if (const int error = read_all(fd(), Row::place(first), std::as_writable_bytes(some)))
      fail("cannot be read", error);
    bool changed = false;
    for (size_t i = 0; i < some.size(); i++) {
      Row& each = some[i];
      if (each.state == empty) continue;
      const bool is_whole = each.state == valid && each.is_of(first + i, layout_);
      if (is_whole) {
        next = std::max(next, round_up(each.offset + each.bytes, entry_alignment));
      } else {
        each = {};
        changed = true;
      }
    }
    if (!changed) continue;
    if (const int error = write_all(fd(), Row::place(first), std::as_bytes(some))) fail("cannot be written", error);
  }
  next = std::min(next, layout_.data_bytes);
  if (const int error = write_value(fd(), offsetof(Header, next), next)) fail("cannot be written", error);
}

size_t EntryFile::find(uint64_t first, bool published, std::span<Piece> pieces, int& error) const noexcept {
  std::array<Row, most_at_once> rows;
  const auto some = std::span(rows).first(pieces.size());
  error = read_all(fd(), Row::place(first), std::as_writable_bytes(some));
  if (error) return 0;
  size_t found = 0;
  for (const Row& row : some) {
    if ((published && row.state != valid) || !row.is_of(first + found, layout_)) break;
    pieces[found++] = {row.offset, row.bytes, row.crc};
  }
  return found;
}

size_t EntryFile::claim(uint64_t first, size_t count, int& error) noexcept {
  const Exclusive alone(*this);
  std::array<Row, most_at_once> rows;
  error = alone.error();
  if (!error) error = read_all(fd(), Row::place(first), std::as_writable_bytes(std::span(rows).first(count)));
  if (error) return 0;
  size_t free = 0;
  for (; free < count && rows[free].state == empty; free++) rows[free] = {claimed, 0, 0, 0, 0, 0};
  error = write_all(fd(), Row::place(first), std::as_bytes(std::span(rows).first(free)));
  return error ? 0 : free;
}

void EntryFile::release(uint64_t entry) noexcept { write_value(fd(), Row::place(entry), uint32_t{empty}); }

std::optional<uint64_t> EntryFile::take(uint64_t bytes, int& error) noexcept {
  const Exclusive alone(*this);
  uint64_t place = 0;
  error = alone.error();
  if (!error) error = read_value(fd(), offsetof(Header, next), place);
  if (error || bytes > layout_.data_bytes - std::min(place, layout_.data_bytes)) return std::nullopt;
  error =
      write_value(fd(), offsetof(Header, next), std::min(layout_.data_bytes, place + round_up(bytes, entry_alignment)));
  return error ? std::nullopt : std::optional(place);
}

int EntryFile::set_pieces(uint64_t first, std::span<const Piece> pieces) noexcept {
  std::array<Row, most_at_once> rows;
  for (size_t i = 0; i < pieces.size(); i++) {
    rows[i] = {claimed, pieces[i].crc, pieces[i].offset, pieces[i].bytes, 0, 0};
    rows[i].check = rows[i].sum(first + i);
  }
  return write_all(fd(), Row::place(first), std::as_bytes(std::span(rows).first(pieces.size())));
}

int EntryFile::publish(uint64_t entry) noexcept { return write_value(fd(), Row::place(entry), uint32_t{valid}); }

int EntryFile::read(uint64_t offset, std::span<std::byte> into) const noexcept {
  return read_all(fd(), table_bytes(layout_.entries) + offset, into);
}

int EntryFile::write(uint64_t offset, std::span<const std::byte> bytes) noexcept {
  return write_all(fd(), table_bytes(layout_.entries) + offset, bytes);
}

int EntryFile::sync() noexcept {
  if (const int error = injected<SyncCacheOp>()) return error;
  return fdatasync(fd()) == 0 ? 0 : errno;
}

}  // namespace feedline::io
