// Memory that ends before a page that cannot be touched, so that a program which writes past it ends at once.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>
#include <span>

namespace feedline::test {

class GuardedMemory {
 public:
  /// The memory is aligned to 8 bytes. So up to 7 bytes behind it can be touched.
  explicit GuardedMemory(size_t bytes) : used_((bytes + 7) / 8 * 8), pages_((used_ + page - 1) / page * page) {
    void* const mapped = mmap(nullptr, pages_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    begin_ = static_cast<std::byte*>(mapped);
    mprotect(begin_ + pages_, page, PROT_NONE);
    bytes_ = {begin_ + pages_ - used_, bytes};
  }
  ~GuardedMemory() { munmap(begin_, pages_ + page); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used_, pages_;
  std::byte* begin_ = nullptr;
  std::span<std::byte> bytes_;
};

}  // namespace feedline::test
