#include "gpu/device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/byte_size.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"

namespace feedline::gpu {
namespace {

struct MmapOp {
  static constexpr const char* name = "mmap";
  static constexpr int error = ENOMEM;
};

constexpr size_t huge_page = size_t{2} << 20;

}  // namespace

Memory::~Memory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());  // can only fail for a range that is not a mapping
}

Memory::Memory(Memory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory Device::allocate(size_t bytes) const {
  if (bytes == 0) return {};
  int error = injected<MmapOp>();
  void* block = MAP_FAILED;
  if (!error) {
    block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    error = errno;
  }
  if (block == MAP_FAILED)
    throw Error(Category::io_error, fmt::format("the system has no {} of memory for us ({}); lower memory.limit",
                                                format_byte_size(bytes), std::generic_category().message(error)));
  if (bytes >= huge_page) madvise(block, bytes, MADV_HUGEPAGE);  // a wish: kernels without huge pages refuse it
  return Memory({static_cast<std::byte*>(block), bytes});
}

}  // namespace feedline::gpu
