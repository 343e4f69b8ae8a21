// A device's memory, and what is computed there in one order: on the host at once, on a GPU on a stream of its own, in
// the GPU's time. What training between replicas needs besides its communicator.
//
//   trainer's stream   write gradient            ... next step reads values
//                           \ follow()           / lead()
//   queue                    copy | reduce | divide | copy
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "feedline/device.h"
#include "gpu/reduce/divide_kernel.h"
#include "gpu/reduce/reduce_kernel.h"

namespace feedline::gpu {

/// From any thread; allocate(), and what makes an order or waits, by one at a time. Throws Error device_error: the GPU
/// is of no use any more.
class Queue {
 public:
  /// Waits until all is done, and gives the memory back.
  virtual ~Queue() = default;

  virtual DeviceId device() const noexcept = 0;
  /// In a thread of ours: the GPU becomes its current device.
  virtual void enter_thread() = 0;
  /// For the calls of a communicator, which are then in this order, too.
  virtual Stream stream() const noexcept = 0;
  /// Memory of the device that lives as long as the queue, aligned to 64 bytes. Throws Error where there is none.
  virtual std::byte* allocate(size_t bytes) = 0;

  /// Within the device; on a GPU also from memory of the host and to it, which is to be that of a host_queue().
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  virtual void reduce(const ReduceLaunch& launch) = 0;
  virtual void divide(const DivideLaunch& launch) = 0;

  /// What comes now is behind what the stream was given until now.
  virtual void follow(Stream stream) = 0;
  /// The same in two steps: what the stream was given until mark(), for what comes from follow_mark() on. By number;
  /// there are as many as make_marks() was asked for. Two threads may do one step each.
  virtual void make_marks(size_t count) = 0;
  virtual void mark(size_t number, Stream stream) = 0;
  virtual void follow_mark(size_t number) = 0;
  /// What the stream is given from now on is behind what came here.
  virtual void lead(Stream stream) = 0;
  /// Waits for a stream that has been given work on memory of the queue, where an error leaves no way to follow() it.
  virtual void drain(Stream stream) noexcept = 0;
  /// Returns when all that came is done.
  virtual void wait() = 0;
};

/// user: the device that its memory is copied to and from, or that communicators of it take. Where that is a GPU and
/// the memory cannot be pinned, allocate() throws Error device_error.
std::shared_ptr<Queue> host_queue(DeviceId user);

/// Throws Error device_error where there is no such GPU. Makes a context there and nowhere else.
std::shared_ptr<Queue> cuda_queue(DeviceId gpu);

}  // namespace feedline::gpu
