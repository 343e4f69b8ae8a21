// Memory of the host.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "feedline/device.h"

namespace feedline::gpu {

/// Owns a block of host memory. The block is page-aligned and zero until it is first written; the system provides a
/// page only when it is first touched.
class Memory {
 public:
  Memory() = default;
  /// Throws Error io_error if the system has no such block. Asks for huge pages if the block has 2 MiB or more.
  explicit Memory(size_t bytes);
  /// Makes a block. If `device` is a GPU, the block is pinned for it (see pin() in device_ring.h). The block may then
  /// be one that KeptMemory has kept, so it is not always zero.
  Memory(size_t bytes, DeviceId device);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::span<std::byte> bytes() const noexcept { return bytes_; }

  /// If `device` is a GPU, pins the block for copies to and from it (see pin() in device_ring.h). Returns whether the
  /// block is pinned.
  bool pin_for(DeviceId device);

 private:
  std::span<std::byte> bytes_;
  std::optional<DeviceId> pinned_for_;
  bool may_be_kept_ = false;  // whether the destructor offers the block to KeptMemory
};

}  // namespace feedline::gpu
