// Orders the writing, the use and the reuse of a batch's memory on a device that works asynchronously.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "feedline/device.h"

namespace feedline::gpu {

/// Bytes of a device that are to be copied: `bytes` bytes at `from`. `to` is the offset of their copy in the new
/// memory.
struct CopyWithin {
  const void* from;
  size_t bytes, to;
};

class OwnMemory;

/// Orders the work of streams on one buffer, for the batch that the buffer holds. One thread at a time may use it.
class StreamOrder {
 public:
  /// Makes the work that the stream is given from now on wait until the batch is written. Throws Error device_error if
  /// the GPU has failed, and bad_pipeline for a default stream of a different GPU.
  virtual void ready_on(Stream stream) = 0;
  /// Copies within the device, on `stream`, on which the batch must be ready. Throws Error device_error if the GPU has
  /// failed, and bad_pipeline for Stream::host and for a default stream of a different GPU.
  virtual void copy_on(Stream stream, void* to, const void* from, size_t bytes) = 0;
  /// Copies bytes of the batch to new memory of the device, and waits until they are there. The new memory has `bytes`
  /// bytes, and is aligned to 256 bytes. Throws Error device_error.
  virtual std::shared_ptr<OwnMemory> copy(std::span<const CopyWithin> parts, size_t bytes) = 0;
  /// Lets the buffer be written again when the stream has done all work that it has been given so far. If that fails,
  /// the feed ends with the reason.
  virtual void release_on(Stream stream) noexcept = 0;
  /// Says that the batch has no user any more. If it was not released, it is released on the streams of its ready_on()
  /// calls.
  virtual void let_go() noexcept = 0;

 protected:
  ~StreamOrder() = default;
};

/// Device memory that is owned by one batch. After let_go(), or else after the destructor, the memory is freed as soon
/// as the streams of all ready_on() calls, or only the stream of release_on() if it was called, have finished the work
/// that they were given.
class OwnMemory : public StreamOrder {
 public:
  virtual ~OwnMemory() = default;
  virtual std::byte* memory() const noexcept = 0;
};

}  // namespace feedline::gpu
