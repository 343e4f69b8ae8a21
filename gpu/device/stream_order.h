// When the memory of a batch is written, and when it may be written again, on a device that works asynchronously.
#pragma once

#include <cstddef>

#include "feedline/device.h"

namespace feedline::gpu {

/// Orders the work of streams on one buffer, for the batch that the buffer holds. One thread at a time may use it.
class StreamOrder {
 public:
  /// Makes the work that the stream is given from now on wait until the batch is written. Throws Error device_error if
  /// the GPU has failed, and bad_pipeline for a default stream of another GPU.
  virtual void ready_on(Stream stream) = 0;
  /// Copies within the device, on `stream`, on which the batch must be ready. Throws as ready_on() does, and
  /// bad_pipeline for Stream::host.
  virtual void copy_on(Stream stream, void* to, const void* from, size_t bytes) = 0;
  /// Lets the buffer be written again when the stream has done all work that it has been given so far. If that cannot
  /// be arranged, the feed ends with the reason.
  virtual void release_on(Stream stream) noexcept = 0;
  /// Says that the batch has no user any more. If it was not released, it is released on the stream of its last
  /// ready_on().
  virtual void let_go() noexcept = 0;

 protected:
  ~StreamOrder() = default;
};

}  // namespace feedline::gpu
