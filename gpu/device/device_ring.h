// A replica's ring of buffers on a GPU: filled by a copy and by kernels, handed out, and filled again when the streams
// that used them have come so far.
//
//   copy stream     wait released[b] | copy packed bytes -> b | record copied[c]
//   unpack stream                                       wait copied[c] | kernels, b -> b | record ready[b]
//   the consumer's                                                            wait ready[b] | ... | record released[b]
//
// The host waits for none of it, but for a copy before it fills the copy's source again. Copies, kernels and the
// consumer's work overlap, each on a stream of its own. In a build without CUDA there is none of this.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "feedline/device.h"
#include "gpu/device/stream_order.h"
#include "gpu/unpack/unpack_kernel.h"

namespace feedline::gpu {

struct CopyToDevice {
  std::span<const std::byte> from;  // of the host, or another ring; not to be written before its finish_copy()
  std::byte* to;                    // in the buffer
};

class DeviceRing {
 public:
  /// Waits until all that was given to its streams, and what released its buffers, is done.
  virtual ~DeviceRing() = default;

  /// Of the device, in one piece: `buffers` times `buffer_bytes`, each aligned to 256 bytes if its size is.
  virtual std::byte* memory() const noexcept = 0;
  /// What was given to open_device_ring(), on the device.
  virtual const std::byte* tables() const noexcept = 0;
  virtual StreamOrder& order(size_t buffer) noexcept = 0;

  /// Once in each thread that calls what follows.
  virtual void enter_thread() = 0;
  /// Gives the streams what fills a buffer that nobody uses. Throws Error device_error: the device is of no use any
  /// more. As many fills may be without a finish_copy() as the ring was opened for.
  virtual void fill(size_t buffer, std::span<const CopyToDevice> copies, std::span<const UnpackLaunch> launches) = 0;
  /// The same from a buffer of the ring that this one was opened behind, as it was last filled. That one is not filled
  /// again before it has been copied.
  virtual void fill_from(DeviceRing& other, size_t others_buffer, size_t buffer, std::span<const CopyToDevice> copies,
                         std::span<const UnpackLaunch> launches) = 0;
  /// Whether go_on() may be called for this stream: throws Error bad_pipeline, or device_error while it captures.
  virtual void check(Stream stream) const = 0;
  /// Behind a buffer's fill(), before anybody is given it, on a stream of the program's: what `arrive` gives that
  /// stream, then the launches. The batch is ready on it. Throws as fill().
  virtual void go_on(size_t buffer, Stream stream, const std::function<void()>& arrive,
                     std::span<const UnpackLaunch> launches) = 0;
  /// Waits until the copies of the first fill() that has had no finish_copy() are done; from another thread, if one
  /// likes. Throws as fill(). How long they took on the device, in seconds.
  virtual double finish_copy() = 0;
  /// Waits until nothing that was given to fill() is read any more; from any thread.
  virtual void drain() noexcept = 0;
};

struct DeviceRingOptions {
  DeviceId gpu;
  size_t buffers, buffer_bytes;
  size_t copies;  // fills without a finish_copy()
  std::span<const std::byte> tables;
  std::span<const UnpackKernel> kernels;  // that will be launched: loaded now, not beside the trainer's work
  std::optional<DeviceId> behind = {};    // the GPU of a ring that this one is to be filled from
};
/// Throws Error device_error, which says what to do, where there is no such GPU, no such memory on it, or no kernels
/// for it. Makes a context on this GPU and no other; leaves the calling thread's current device alone.
std::shared_ptr<DeviceRing> open_device_ring(const DeviceRingOptions& options);

/// Throws Error device_error where a device is a GPU that there is not.
void check_devices(std::span<const DeviceId> devices);

/// Lets GPUs read this memory of the host by themselves: copies from it then overlap with everything. False, with one
/// line in the log, where that is not possible; copies work all the same.
bool pin(std::span<std::byte> memory, DeviceId gpu) noexcept;
void unpin(std::span<std::byte> memory, DeviceId gpu) noexcept;

}  // namespace feedline::gpu
