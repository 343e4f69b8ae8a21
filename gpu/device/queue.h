// A device's memory, and a queue of work on that memory (copies, reductions and divisions), which the device does in
// order. The host does the work at once; a GPU does it asynchronously, on a stream of the queue. Data-parallel training
// needs a queue besides its communicator.
//
//   trainer's stream   write gradient            ... next step reads values
//                           \ follow()           / lead()
//   queue                    copy | reduce | divide | copy
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "feedline/device.h"
#include "feedline/export.h"
#include "gpu/reduce/copy_kernel.h"
#include "gpu/reduce/divide_kernel.h"
#include "gpu/reduce/reduce_kernel.h"

namespace feedline::gpu {

/// A queue of work and the memory that the work uses. Any thread may call the functions, but only one thread at a time
/// may call allocate() and the functions that create an order or wait. The functions throw Error device_error if the
/// GPU fails; the GPU cannot be used after that.
class Queue {
 public:
  /// Waits until all work is done, and gives the memory back.
  virtual ~Queue() = default;

  virtual DeviceId device() const noexcept = 0;
  /// Makes the queue's GPU the current device of the calling thread, which must be one of feedline's own threads.
  virtual void enter_thread() = 0;
  /// Returns the queue's stream. If a communicator is given this stream, its calls are done in order with the queue's
  /// work.
  virtual Stream stream() const noexcept = 0;
  /// Returns memory of the device that lives as long as the queue, aligned to 64 bytes. Throws Error if the device has
  /// no such memory.
  virtual std::byte* allocate(size_t bytes) = 0;

  /// Copies within the device. On a GPU, one side may also be memory of the host, which is best pinned. Bytes that are
  /// copied from the host must not change before wait().
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  /// Makes many copies within the device, in any order.
  virtual void copy(std::span<const CopyPart> parts) = 0;
  /// Reduces, or divides, as the launch says. All pointers in the launch are to memory of the device.
  virtual void reduce(const ReduceLaunch& launch) = 0;
  virtual void divide(const DivideLaunch& launch) = 0;

  /// Makes the work that the queue is given from now on wait for all work that the stream has been given so far.
  virtual void follow(Stream stream) = 0;
  /// Do what follow() does in two steps, mark() and follow_mark(), which two different threads may call. The work that
  /// the queue is given from follow_mark() on waits for the work that the stream had been given at mark(). make_marks()
  /// makes the marks, which are numbered from 0 to `count` - 1.
  virtual void make_marks(size_t count) = 0;
  virtual void mark(size_t number, Stream stream) = 0;
  virtual void follow_mark(size_t number) = 0;
  /// Makes the work that the stream is given from now on wait for all work that the queue has been given so far.
  virtual void lead(Stream stream) = 0;
  /// Waits until a stream has done its work. Call this function if an error makes it impossible to follow() a stream
  /// that has been given work on memory of the queue.
  virtual void drain(Stream stream) noexcept = 0;
  /// Waits until all work that the queue has been given is done.
  virtual void wait() = 0;
};

/// Returns a queue on the host. `user` is the device that copies to and from the queue's memory, or whose communicators
/// are given that memory. If `user` is a GPU and the memory cannot be pinned, allocate() throws Error device_error.
FEEDLINE_PUBLIC std::shared_ptr<Queue> host_queue(DeviceId user);

/// Returns a queue on a GPU. Throws Error device_error if there is no such GPU. Makes a context on this GPU and no
/// other.
FEEDLINE_PUBLIC std::shared_ptr<Queue> cuda_queue(DeviceId gpu);

}  // namespace feedline::gpu
