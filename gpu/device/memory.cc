#include "gpu/device/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/byte_size.h"
#include "base/syscall_hooks.h"
#include "feedline/error.h"
#include "gpu/device/device_ring.h"
#include "gpu/device/kept_memory.h"

namespace feedline::gpu {
namespace {

using MmapOp = HookedCall<"mmap", ENOMEM>;

constexpr size_t huge_page = size_t{2} << 20;

void unmap(std::span<std::byte> bytes) noexcept {
  if (!bytes.empty()) munmap(bytes.data(), bytes.size());  // can only fail for a range that is not a mapping
}

}  // namespace

Memory::Memory(size_t bytes) {
  if (bytes == 0) return;
  int error = injected<MmapOp>();
  void* block = MAP_FAILED;
  if (!error) {
    block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    error = errno;
  }
  if (block == MAP_FAILED)
    throw Error(Category::io_error,
                fmt::format("the system cannot provide {} of memory ({}); lower memory.limit, or free memory",
                            format_byte_size(bytes), std::generic_category().message(error)));
  if (bytes >= huge_page) madvise(block, bytes, MADV_HUGEPAGE);  // only advice: kernels without huge pages refuse it
  bytes_ = {static_cast<std::byte*>(block), bytes};
}

Memory::Memory(size_t bytes, DeviceId device) {
  if (device.kind == DeviceId::Kind::cuda)
    if (void* const kept = take_kept(device, false, bytes)) {
      bytes_ = {static_cast<std::byte*>(kept), bytes};
      pinned_for_ = device;
      may_be_kept_ = true;
      return;
    }
  *this = Memory(bytes);
  may_be_kept_ = pin_for(device);
}

Memory::~Memory() {
  if (!pinned_for_) {
    unmap(bytes_);
    return;
  }
  const KeptBlock block{*pinned_for_, false, bytes_.data(), bytes_.size(), [](const KeptBlock& of) noexcept {
                          const std::span bytes(static_cast<std::byte*>(of.address), of.bytes);
                          unpin(bytes, of.gpu);
                          unmap(bytes);
                        }};
  if (!may_be_kept_ || !keep(block)) block.free(block);
}

Memory::Memory(Memory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      pinned_for_(std::exchange(other.pinned_for_, {})),
      may_be_kept_(other.may_be_kept_) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(pinned_for_, other.pinned_for_);
  std::swap(may_be_kept_, other.may_be_kept_);
  return *this;
}

bool Memory::pin_for(DeviceId device) {
  if (device.kind != DeviceId::Kind::cuda || bytes_.empty() || !pin(bytes_, device)) return false;
  pinned_for_ = device;
  // Without this, a forked child would share the pages until one process writes to them. The writer then gets a copy,
  // and the GPU might continue to use the old pages, which this process no longer has.
  madvise(bytes_.data(), bytes_.size(), MADV_DONTFORK);
  return true;
}

}  // namespace feedline::gpu
