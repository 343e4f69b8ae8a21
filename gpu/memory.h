// Memory of a device. The host stands for any number of virtual replicas.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "feedline/device.h"

namespace feedline::gpu {

/// A block of device memory: page-aligned, zero until first written, touched lazily. Frees itself.
class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;

  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  friend class Device;
  explicit Memory(std::span<std::byte> bytes) noexcept : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

/// Immutable and thread-safe.
class Device {
 public:
  explicit Device(DeviceId) noexcept {}  // so far every id is one of the host's

  /// Throws Error io_error when the system has no such block. Huge pages are asked for from 2 MiB on.
  Memory allocate(size_t bytes) const;
};

}  // namespace feedline::gpu
