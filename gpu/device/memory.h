// Memory of the host.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "feedline/device.h"

namespace feedline::gpu {

/// A block of memory: page-aligned, zero until first written, touched lazily. Frees itself.
class Memory {
 public:
  Memory() = default;
  /// Throws Error io_error when the system has no such block. Huge pages are asked for from 2 MiB on.
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::span<std::byte> bytes() const noexcept { return bytes_; }

  /// Where the device is a GPU: for copies to it, see pin(). Whether it is pinned.
  bool pin_for(DeviceId device);

 private:
  std::span<std::byte> bytes_;
  std::optional<DeviceId> pinned_for_;
};

}  // namespace feedline::gpu
