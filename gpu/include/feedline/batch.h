// A batch: named tensors of one replica for one step.
#pragma once

#include <cstdint>
#include <memory>
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

/// Dense outputs go by their name. A variable one is several tensors: NAME.values (or, for bytes, NAME.bytes and
/// NAME.offsets) and NAME.row_splits, as feedline dump names its files.
struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// The memory of a batch and what is in it; filled by the feeder, read-only for everybody else.
struct BatchContent {
  uint64_t epoch = 0;
  uint64_t step = 0;        // in the epoch
  int replica = 0;          // of this process
  int64_t rows = 0;         // first axis of dense tensors
  int64_t valid_count = 0;  // of these rows, the ones that are samples and not filler
  uint64_t audit = 0;       // sum over the valid rows, see Feeder::report()
  std::vector<NamedTensor> tensors;
  gpu::StreamOrder* order = nullptr;  // of a device that works in its own time
};

/// Move-only handle. next() may hand it out before its tensors are written, and it may be given back before they have
/// been read, where a device does both in its own time; so whoever uses it says on which stream:
///
///   batch->ready_on(stream);    // before the first use: what the stream is given from now on finds the tensors
///   written
///   ...                         // give the stream work that reads them
///   batch->release_on(stream);  // the memory is reused when the stream has done the work given to it until now
///
/// Work on several streams: ready_on each; release_on one that waits for the others. A batch that dies unreleased is
/// released on the last stream that it was ready on.
///
/// Tensors are for reading: with REPLICATE another GPU may still be given their bytes.
///
/// A host replica's batch is written before next() returns, and on Stream::host its memory goes back at once; there
/// both calls may be left out. Of a batch on a GPU the tensors' data is memory of that GPU. Release and destruction may
/// happen on any thread, also after the feeder is gone; the streams that were named must still be there. Neither call
/// belongs into a stream's capture: see Feeder::next_into().
class FEEDLINE_PUBLIC Batch {
 public:
  Batch() = default;
  explicit Batch(std::shared_ptr<const BatchContent> content) : content_(std::move(content)) {}
  Batch(Batch&&) noexcept = default;
  Batch& operator=(Batch&&) noexcept = default;

  explicit operator bool() const noexcept { return content_ != nullptr; }
  Batch* operator->() noexcept { return this; }
  const Batch* operator->() const noexcept { return this; }

  uint64_t epoch() const noexcept { return content_->epoch; }
  uint64_t step() const noexcept { return content_->step; }
  int replica() const noexcept { return content_->replica; }
  int64_t rows() const noexcept { return content_->rows; }
  int64_t valid_count() const noexcept { return content_->valid_count; }
  uint64_t audit() const noexcept { return content_->audit; }
  const std::vector<NamedTensor>& tensors() const noexcept { return content_->tensors; }

  /// Throws Error bad_pipeline, listing the names there are, for one that is not there.
  TensorView at(std::string_view name) const;

  /// The stream waits until the tensors are written; the calling thread waits only where the stream is Stream::host.
  /// Throws Error device_error where the GPU has failed. Precondition: not empty.
  void ready_on(Stream stream) const;
  /// Copies a tensor of the batch on a stream that it is ready on, to memory of its device.
  void copy_on(Stream stream, const TensorView& tensor, void* to) const;
  /// Leaves the batch empty. Its memory goes back to the feeder as soon as the stream has come this far.
  void release_on(Stream stream);

 private:
  std::shared_ptr<const BatchContent> content_;
};

}  // namespace feedline
