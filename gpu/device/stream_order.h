// When the memory of a batch is written, and when it may be written again, on a device that works in its own time.
#pragma once

#include <cstddef>

#include "feedline/device.h"

namespace feedline::gpu {

/// Of one buffer. One user at a time.
class StreamOrder {
 public:
  /// What the stream is given from now on finds the batch written. Throws Error device_error.
  virtual void ready_on(Stream stream) = 0;
  /// Copies within the device, behind what the stream was given; the batch is ready on it. Throws as ready_on().
  virtual void copy_on(Stream stream, void* to, const void* from, size_t bytes) = 0;
  /// The buffer may be written again when the stream has done what it was given until now. Where that cannot be
  /// arranged, the feed ends with the reason.
  virtual void release_on(Stream stream) noexcept = 0;
  /// The batch has no user any more. If it was not released, it is on the stream that it was last ready on.
  virtual void let_go() noexcept = 0;

 protected:
  ~StreamOrder() = default;
};

}  // namespace feedline::gpu
