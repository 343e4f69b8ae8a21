#include "io/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "io/file.h"
#include "io/syscall_ops.h"

namespace feedline::io {
namespace {

using CreateOp = HookedCall<"create", EACCES>;
using WriteOp = HookedCall<"write", ENOSPC>;
using ShortWriteOp = HookedCall<"write short", 1>;
using InterruptedWriteOp = HookedCall<"write interrupted", EINTR>;
using SyncOp = HookedCall<"fsync", EIO>;
using CloseOp = HookedCall<"close", EDQUOT>;  // network file systems may report the failure of an earlier write here
using RenameOp = HookedCall<"rename", EACCES>;

// Makes the call, unless a test makes the operation Op fail. Returns the errno of the failure, or 0.
template <typename Op, typename Call>
int attempt(Call call) {
  if (const int error = injected<Op>()) return error;
  return call() == 0 ? 0 : errno;
}

/// Locks a temporary file for as long as it is open, so that remove_unfinished() leaves it alone. Returns false if
/// another process has locked or removed the file, because it took the file for one that a killed process left. Other
/// failures of a lock are ignored, because some network file systems cannot lock.
bool lock_temporary(int fd) {
  struct stat now {};
  return (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && (fstat(fd, &now) != 0 || now.st_nlink > 0);
}

/// Returns NAME if `temporary` is NAME.PID-N.feedline-part, the temporary name of a file that was to be called NAME.
/// Returns an empty string if `temporary` is not such a name.
std::string_view name_of_unfinished(std::string_view temporary) noexcept {
  constexpr std::string_view end = ".feedline-part";
  if (!temporary.ends_with(end)) return {};
  temporary.remove_suffix(end.size());
  const auto cut_number = [&](char before) {
    const size_t at = temporary.find_last_not_of("0123456789");
    if (at == std::string_view::npos || at + 1 == temporary.size() || temporary[at] != before) return false;
    temporary = temporary.substr(0, at);
    return true;
  };
  return cut_number('-') && cut_number('.') ? temporary : std::string_view();
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

int rename_file(const std::string& from, const std::string& to) noexcept {
  return attempt<RenameOp>([&] { return rename(from.c_str(), to.c_str()); });
}

int sync_folder(const std::string& folder) noexcept {
  int error = injected<OpenOp>();
  const Descriptor opened(error ? -1 : open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!error && !opened) error = errno;
  if (!error) error = attempt<SyncOp>([&] { return fsync(opened.fd()); });
  return error == EINVAL ? 0 : error;  // EINVAL: this file system cannot sync folders
}

bool is_unfinished_name(std::string_view path) noexcept {
  return !name_of_unfinished(path.substr(path.rfind('/') + 1)).empty();
}

void remove_unfinished(const std::string& folder, const std::function<bool(std::string_view name)>& ours) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    const std::string_view name = name_of_unfinished(std::string_view(path).substr(path.rfind('/') + 1));
    if (name.empty() || !ours(name)) continue;
    // O_RDWR, because NFS grants no exclusive lock of a file that is open only for reading.
    const Descriptor opened(open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!opened) continue;
    struct stat locked {
    }, named{};
    if (flock(opened.fd(), LOCK_EX | LOCK_NB) == 0 && fstat(opened.fd(), &locked) == 0 &&
        lstat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino && locked.st_dev == named.st_dev)
      unlink(path.c_str());
  }
}

void remove_unfinished(const std::string& path) {
  const std::string_view wanted = std::string_view(path).substr(path.rfind('/') + 1);
  remove_unfinished(folder_of(path), [&](std::string_view name) { return name == wanted; });
}

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  struct stat there {};
  if (stat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    throw Error(Category::io_error, "exists and is not a regular file, so it is not replaced; name a different file",
                Place::of_file(path_));
  static std::atomic<unsigned> counter{0};
  int error = 0;
  do {
    temporary_ = fmt::format("{}.{}-{}.feedline-part", path_, getpid(), counter++);
    error = injected<CreateOp>();
    if (error) break;
    descriptor_ = {};
    descriptor_ = Descriptor(open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    error = !descriptor_ ? errno : lock_temporary(descriptor_.fd()) ? 0 : EAGAIN;
  } while (error == EEXIST || error == EINTR || error == EAGAIN);
  if (error) {
    temporary_.clear();
    fail("cannot be created", error);
  }
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() noexcept {
  descriptor_ = {};
  if (!temporary_.empty()) unlink(std::exchange(temporary_, {}).c_str());
}

void OutputFile::fail(const char* what, int error) {
  discard();
  throw io_failure(path_, what, error);
}

void OutputFile::check_open() {
  if (!descriptor_) fail("cannot be used any more, because it was closed or an earlier call failed", EBADF);
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write_at(written_, bytes);
  written_ += bytes.size();
}

void OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  check_open();
  while (!bytes.empty()) {
    size_t size = bytes.size();
    if (injected<ShortWriteOp>()) size = (size + 1) / 2;
    int error = injected<InterruptedWriteOp>();
    if (!error) error = injected<WriteOp>();
    const ssize_t written = error ? -1 : pwrite(descriptor_.fd(), bytes.data(), size, static_cast<off_t>(offset));
    if (written < 0) {
      if (!error) error = errno;
      if (error == EINTR) continue;
      fail("cannot be written", error);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

void OutputFile::read_at(uint64_t offset, std::span<std::byte> out) {
  check_open();
  while (!out.empty()) {
    size_t size = out.size();
    if (injected<ShortReadOp>()) size = (size + 1) / 2;
    int error = injected<InterruptedReadOp>();
    if (!error) error = injected<ReadOp>();
    const ssize_t got = error ? -1 : pread(descriptor_.fd(), out.data(), size, static_cast<off_t>(offset));
    if (got < 0) {
      if (!error) error = errno;
      if (error == EINTR) continue;
      fail("cannot be read back", error);
    }
    if (got == 0) fail("was truncated by another program while it was written", ENODATA);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

void OutputFile::rename_to_path() {
  // Keeps the temporary file locked until it is renamed.
  const Descriptor lock(fcntl(descriptor_.fd(), F_DUPFD_CLOEXEC, 0));
  // Linux has closed the descriptor even if close() reports a failure.
  const int closed = attempt<CloseOp>([&] { return close(descriptor_.release()); });
  const int renamed = closed ? 0 : rename_file(temporary_, path_);
  if (closed) fail("cannot be closed", closed);
  if (renamed) fail("cannot be renamed from its temporary name", renamed);
  temporary_.clear();
}

void OutputFile::publish_unsynced() {
  check_open();
  rename_to_path();
}

void OutputFile::publish() {
  check_open();
  if (const int error = attempt<SyncOp>([&] { return fsync(descriptor_.fd()); })) fail("cannot be synced", error);
  rename_to_path();
  if (const int error = sync_folder(folder_of(path_))) fail("is complete, but its folder cannot be synced", error);
}

}  // namespace feedline::io
