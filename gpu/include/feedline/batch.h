// A batch: the named tensors that one replica gets for one step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "feedline/device.h"
#include "feedline/export.h"
#include "feedline/tensor.h"

namespace feedline {

namespace gpu {
class StreamOrder;
}

/// A tensor and its name. A dense output is one tensor, which has the output's name. An output NAME of varying length
/// consists of several tensors: NAME.values (or, for bytes, NAME.bytes and NAME.offsets), NAME.step_splits if rows have
/// steps, and NAME.row_splits. `feedline dump` uses the same names for its files.
struct NamedTensor {
  std::string name;
  TensorView tensor;
  /// True if the tensor's bytes have further readers, which would get wrong data if somebody wrote to the bytes. This
  /// is so if the bytes lie in the buffer into which the file was read, if a different GPU copies them, or if a
  /// different output has the same bytes.
  bool lent = false;
};

/// The tensors of a batch, and what is known about them. The feeder fills it in; it is read-only for everyone else.
struct BatchContent {
  uint64_t epoch = 0;
  uint64_t step = 0;        // the number of the step in its epoch, from 0
  int replica = 0;          // the number of the replica in this process, from 0
  int64_t rows = 0;         // the length of the first axis of every dense tensor
  int64_t valid_count = 0;  // how many of the rows are samples; the other rows are filler, 0 in the valid mask
  uint64_t audit = 0;       // the sum of the hashes of the valid rows' records, see Feeder::report()
  uint64_t bad_audit = 0;   // the same sum for records that proved bad while the batch was made: broken pictures, ...
  std::vector<NamedTensor> tensors;
  gpu::StreamOrder* order = nullptr;  // the buffer's stream order if the batch is on a GPU; null on the host
};

/// A move-only handle of a batch.
///
/// A GPU works asynchronously. The feeder may therefore hand out a batch before its tensors are written, and the
/// program may give it back before they have been read. So the program says on which stream it uses the batch:
///
///   batch->ready_on(stream);    // before the first use: work that is given to the stream from now on finds the
///                               // tensors written
///   ...                         // give the stream work that reads the tensors
///   batch->release_on(stream);  // the feeder reuses the memory when the stream has done all work given to it so far
///
/// If several streams use the batch, call ready_on() for each of them. Then call release_on() for a stream that waits
/// for all of them. A batch that is destroyed without release_on() is released on the streams of all its ready_on()
/// calls.
///
/// Do not write to the tensors: with `distribute: REPLICATE`, a different GPU may still be copying their bytes.
///
/// On the host, a batch is written before next() returns, and release_on(Stream::host) gives its memory back at once.
/// For a batch on the host, both calls may be left out. For a batch on a GPU, the tensors' data points to memory of
/// that GPU.
///
/// Any thread may release or destroy a batch, also after the feeder is destroyed; the streams that were named in
/// ready_on() must still exist. Do not call ready_on() or release_on() while the stream captures a CUDA graph: see
/// Feeder::next_into().
class FEEDLINE_PUBLIC Batch {
 public:
  Batch() = default;
  explicit Batch(std::shared_ptr<const BatchContent> content) : content_(std::move(content)) {}
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&&) noexcept = default;

  /// Returns whether there is a batch. A handle is empty after Batch(), after a move from it, and after release_on().
  explicit operator bool() const noexcept { return content_ != nullptr; }
  Batch* operator->() noexcept { return this; }
  const Batch* operator->() const noexcept { return this; }

  // The members of BatchContent. Precondition of these and of all later functions: the batch is not empty.
  uint64_t epoch() const noexcept { return content_->epoch; }
  uint64_t step() const noexcept { return content_->step; }
  int replica() const noexcept { return content_->replica; }
  int64_t rows() const noexcept { return content_->rows; }
  int64_t valid_count() const noexcept { return content_->valid_count; }
  uint64_t audit() const noexcept { return content_->audit; }
  uint64_t bad_audit() const noexcept { return content_->bad_audit; }
  const std::vector<NamedTensor>& tensors() const noexcept { return content_->tensors; }

  /// Returns the tensor of this name. If the batch has no such tensor, throws Error bad_pipeline, which lists the names
  /// of all its tensors.
  TensorView at(std::string_view name) const;

  /// Makes the stream wait until the tensors are written. The calling thread waits only if the stream is Stream::host.
  /// Throws Error device_error if the GPU has failed, and bad_pipeline if `stream` is a default stream and the thread's
  /// current device is not the batch's.
  void ready_on(Stream stream) const;
  /// Copies the bytes of `tensor`, which is a tensor of this batch, to `to`, which is memory of the batch's device. The
  /// copy is done on `stream`, for which ready_on() must have been called before. Throws the Errors of ready_on(), and
  /// bad_pipeline for Stream::host if the batch is on a GPU.
  void copy_on(Stream stream, const TensorView& tensor, void* to) const;
  /// Returns a batch with copies of these tensors, which are tensors of this batch. The copies have memory of their own
  /// on the same device. They have no other readers (NamedTensor::lent is false), and do not count among the buffers of
  /// the feeder. Waits until the copies are done. Throws Error device_error if the GPU has failed, and std::bad_alloc.
  Batch copy(std::span<const NamedTensor> tensors) const;
  Batch copy() const { return copy(tensors()); }
  /// Leaves the batch empty. The feeder reuses its memory when the stream has done all work that it has been given so
  /// far. Throws nothing; if the release fails, the feed ends later with the reason.
  void release_on(Stream stream);

 private:
  std::shared_ptr<const BatchContent> content_;
};

}  // namespace feedline
