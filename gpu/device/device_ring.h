// A replica's ring of buffers on a GPU. A copy and kernels fill a buffer b; the consumer uses it; and it is filled
// again when the consumer's stream has released it. The three streams wait for one another's events (b is the number of
// a buffer, c the number of a fill):
//
//   copy stream     wait released[b] | copy packed bytes -> b | record copied[c]
//   unpack stream                                       wait copied[c] | kernels, b -> b | record ready[b]
//   the consumer's                                                            wait ready[b] | ... | record released[b]
//
// The host waits only for a copy, before it overwrites the source of that copy. Copies, kernels and the consumer's work
// overlap because each has a stream of its own. A build without CUDA has no DeviceRing (cuda_absent.cc).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "feedline/device.h"
#include "gpu/device/stream_order.h"
#include "unpack/unpack_kernel.h"

namespace feedline::gpu {

/// A copy of bytes into a buffer of a ring.
struct CopyToDevice {
  std::span<const std::byte> from;  // memory of the host, or of a different ring; must not change before finish_copy()
  std::byte* to;                    // an address in the buffer
};

/// The buffers of one replica on one GPU. Buffers are numbered from 0.
class DeviceRing {
 public:
  /// Waits until the GPU has done the work of the ring's streams, and the work that the users of each buffer had given
  /// to their streams before they released it.
  virtual ~DeviceRing() = default;

  /// Returns the memory of all buffers, which lies on the device in one piece: `buffers` times `buffer_bytes`. Each
  /// buffer is aligned to 256 bytes if `buffer_bytes` is a multiple of 256.
  virtual std::byte* memory() const noexcept = 0;
  /// Returns the device's copy of DeviceRingOptions::tables.
  virtual const std::byte* tables() const noexcept = 0;
  /// Returns the stream order of a buffer, which lives as long as the ring.
  virtual StreamOrder& order(size_t buffer) noexcept = 0;

  /// Returns whether fill_from() may be called, that is, whether this ring's GPU can directly read the memory of the
  /// GPU DeviceRingOptions::copies_from.
  virtual bool reaches() const noexcept = 0;

  /// Makes the ring's GPU the current device of the calling thread. Call it once in each of feedline's threads that
  /// fills buffers.
  virtual void enter_thread() = 0;
  /// Gives the ring's streams the work that fills a buffer: the copies, then the launches. The buffer must have no
  /// user. Throws Error device_error if the GPU fails; the GPU cannot be used after that. At most
  /// DeviceRingOptions::copies fills may be waiting for their finish_copy().
  virtual void fill(size_t buffer, std::span<const CopyToDevice> copies,
                    std::span<const unpack::UnpackLaunch> launches) = 0;
  /// Does what fill() does, but copies from the last content of `others_buffer` in the ring `other`, whose GPU is
  /// DeviceRingOptions::copies_from. `other` does not fill that buffer again before its content has been copied.
  /// Precondition: reaches().
  virtual void fill_from(DeviceRing& other, size_t others_buffer, size_t buffer, std::span<const CopyToDevice> copies,
                         std::span<const unpack::UnpackLaunch> launches) = 0;
  /// Throws Error bad_pipeline if the stream is one that go_on() cannot use, and device_error if it captures a graph at
  /// present.
  virtual void check(Stream stream) const = 0;
  /// Completes a buffer on a stream of the program. First makes the stream wait for the buffer's fill(). Then calls
  /// `arrive`, which gives the stream more work: the exchange of rows with other ranks. Then gives the stream the
  /// launches. Call this function after the buffer's fill() and before a user gets the buffer. The buffer is then ready
  /// on this stream. Throws Error device_error if the GPU fails.
  virtual void go_on(size_t buffer, Stream stream, const std::function<void()>& arrive,
                     std::span<const unpack::UnpackLaunch> launches) = 0;
  /// Waits until the copies of a fill() are done: the oldest fill() for which this function was not called yet. Returns
  /// how many seconds these copies took on the device. The caller may be a different thread than the caller of fill().
  /// Throws Error device_error if the GPU fails.
  virtual double finish_copy() = 0;
  /// Waits until the copies of all fills are done, so that nothing reads their sources any more. Any thread may call
  /// it.
  virtual void drain() noexcept = 0;
};

/// Describes the ring that open_device_ring() makes.
struct DeviceRingOptions {
  DeviceId gpu;
  size_t buffers, buffer_bytes;
  size_t copies;                      // how many fills may be waiting for their finish_copy(), at most
  std::span<const std::byte> tables;  // copied to the device
  std::span<const unpack::UnpackKernel>
      kernels;  // the kernels that will be launched; loaded now, because loading them later
                // would disturb the trainer's work
  // Memory of the device, besides the ring's own, that launches read. The ring keeps this memory until the GPU has done
  // the ring's work.
  std::vector<std::shared_ptr<const std::byte>> reads = {};
  std::optional<DeviceId> copies_from = {};  // the GPU of the ring that fill_from() copies from, if reaches() is true
};
/// Makes a ring. Throws Error device_error, which says what to do, if there is no such GPU, not enough memory on it, or
/// no kernel for it. Makes a context on this GPU and no other, and does not change the calling thread's current device.
std::shared_ptr<DeviceRing> open_device_ring(const DeviceRingOptions& options);

/// Throws Error device_error if one of the devices is a GPU that does not exist.
void check_devices(std::span<const DeviceId> devices);

/// Pins host memory, so that GPUs can access it directly and copies from it overlap with all other work. Nothing should
/// have touched the memory yet: only then are its pages allocated on the NUMA node of `gpu`, if that node has free
/// ones. Returns false, and writes one line to the log, if the memory cannot be pinned; copies still work.
bool pin(std::span<std::byte> memory, DeviceId gpu) noexcept;
/// Undoes pin().
void unpin(std::span<std::byte> memory, DeviceId gpu) noexcept;

}  // namespace feedline::gpu
