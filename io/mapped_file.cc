#include "io/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "io/syscall_ops.h"

namespace feedline::io {
namespace {

struct MapOp {
  static constexpr const char* name = "mmap";
  static constexpr int error = ENOMEM;
};

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  const auto fail = [&](const char* what, int error) {
    throw Error(Category::io_error, fmt::format("{}: {}", what, std::generic_category().message(error)),
                {path, -1, -1, ""});
  };
  int fd = -1, error = 0;
  do {
    error = injected<OpenOp>();
    // A FIFO without a writer would wait for ever.
    fd = error ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (!error && fd < 0) error = errno;
  } while (error == EINTR);
  if (error == ENOENT || error == ENOTDIR) return nullptr;
  if (error) fail("cannot be opened", error);
  struct stat status {};
  error = injected<StatOp>();
  if (!error && fstat(fd, &status) != 0) error = errno;
  const auto size = static_cast<size_t>(status.st_size);
  void* memory = nullptr;
  const bool regular = S_ISREG(status.st_mode);
  if (!error && regular && size > 0) {
    error = injected<MapOp>();
    if (!error) memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (memory == MAP_FAILED) error = errno;
  }
  close(fd);
  if (error) fail("cannot be mapped", error);
  if (!regular) throw Error(Category::io_error, "is no regular file", {path, -1, -1, ""});
  return std::shared_ptr<const MappedFile>(new MappedFile({static_cast<const std::byte*>(memory), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace feedline::io
