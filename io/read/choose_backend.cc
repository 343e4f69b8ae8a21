// Decides which backend reads the files, and whether it uses O_DIRECT.
#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/machine.h"
#include "feedline/error.h"
#include "io/read/backends.h"

namespace feedline::io {
namespace {

// Decides whether `automatic` uses O_DIRECT: returns `automatic` if the files are larger than the memory, else `off`.
// The page cache cannot speed up an epoch over more data than memory, and such an epoch would evict other programs'
// data.
Toggle settle(Toggle direct, const std::vector<FileId>& files) {
  if (direct != Toggle::automatic) return direct;
  uint64_t bytes = 0;
  for (const FileId& file : files) bytes += file.size;
  return bytes > usable_memory() ? Toggle::automatic : Toggle::off;
}

// Returns what a user can do about this failure of io_uring.
std::string advice(int error) {
  int disabled = 0;  // 0: all may use io_uring; 1: CAP_SYS_ADMIN or a group may; 2: no process may (io_uring_setup(2))
  std::ifstream("/proc/sys/kernel/io_uring_disabled") >> disabled;
  if (error == EPERM && disabled != 0)
    return fmt::format("kernel.io_uring_disabled is {}; `sysctl kernel.io_uring_disabled=0` allows io_uring", disabled);
  if (error == EPERM)
    return "a container's seccomp profile forbids io_uring; allow io_uring_setup, io_uring_enter and io_uring_register "
           "in the profile";
  if (error == ENOSYS)
    return "io_uring needs Linux 5.6 or newer, a seccomp profile that allows io_uring, and a build of feedline with "
           "liburing";
  if (error == ENOMEM) return "raise the limit of locked memory (ulimit -l)";
  if (error == EMFILE || error == ENFILE) return "raise the limit of open files (ulimit -n)";
  return "the backend 'pread' works on every system";
}

}  // namespace

const char* describe(Toggle direct) noexcept {
  switch (direct) {
    case Toggle::off:
      return "page cache";
    case Toggle::on:
      return "O_DIRECT";
    case Toggle::automatic:
      return "O_DIRECT where the file system has it";
  }
  return "?";
}

std::unique_ptr<ReadBackend> make_read_backend(std::vector<FileId> files, const BackendOptions& options,
                                               ReadDone done) {
  const Toggle direct = settle(options.direct, files);
  const auto table = std::make_shared<FileTable>(std::move(files), direct);
  std::string reason;
  try {
    if (options.backend != BackendKind::pread) {
      try {
        return make_uring_backend(table, options, done);
      } catch (const std::system_error& refused) {
        reason = refused.what();
        const bool by_name = options.backend == BackendKind::uring;
        // The thread could not be started. This says nothing about io_uring.
        if (by_name && refused.code() == std::errc::resource_unavailable_try_again) throw;
        if (by_name)
          throw Error(Category::io_error, fmt::format("io_uring was asked for, but is not available: {}; {}", reason,
                                                      advice(refused.code().value())));
        log_info(fmt::format("reading with pread instead of io_uring: {}", reason));
      }
    }
    return make_pread_backend(table, options, std::move(done), reason);
  } catch (const std::system_error& failed) {
    throw Error(Category::io_error, fmt::format("cannot start reading: {}", failed.what()));
  }
}

}  // namespace feedline::io
