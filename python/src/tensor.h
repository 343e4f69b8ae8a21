// A tensor of a batch, as Python sees it: a DLPack object.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "feedline/batch.h"
#include "feedline/device.h"
#include "feedline/tensor.h"

namespace feedline::python {

/// A batch whose tensors Python and its frameworks hold. Any thread may free them, whether it holds the GIL or not.
struct SharedBatch {
  SharedBatch(Batch given, DeviceId on) : batch(std::move(given)), device(on) {}
  /// Gives the batch back to the feeder. If the loader has ended and this is its last batch, waits for the GPU, without
  /// the GIL.
  ~SharedBatch();
  SharedBatch(const SharedBatch&) = delete;

  Batch batch;
  const DeviceId device;
  std::mutex mutex;  // one thread at a time may name a stream that uses the batch
};

/// A tensor of a batch. Keeps the batch alive.
class Tensor {
 public:
  /// `tensor` is a tensor of `batch`.
  Tensor(std::shared_ptr<SharedBatch> batch, const NamedTensor& tensor) : batch_(std::move(batch)), tensor_(&tensor) {}

  DType dtype() const noexcept { return tensor_->tensor.dtype; }
  const Shape& shape() const noexcept { return tensor_->tensor.shape; }
  size_t size_bytes() const noexcept { return tensor_->tensor.size_bytes(); }
  DeviceId device() const noexcept { return batch_->device; }
  bool on_host() const noexcept { return device().kind == DeviceId::Kind::host; }
  bool lent() const noexcept { return tensor_->lent; }
  /// The elements. They must lie on the host.
  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(tensor_->tensor.data), size_bytes()};
  }

  /// `__dlpack__` of the Python array API standard. Makes a versioned capsule if `max_version` allows it.
  ///
  /// If the tensor is on a GPU, `stream` names the stream that will use it: None or 1 is the legacy default stream of
  /// the tensor's GPU, 2 is the per-thread default stream, -1 names no stream, and any other number is the handle of a
  /// stream, which must outlive the batch. The stream waits until the tensor is written. After the batch has been
  /// freed, its memory goes back to the feeder when all named streams have done the work that they had been given by
  /// then.
  ///
  /// Raises BufferError for a request that cannot be fulfilled, and TypeError for an argument of a wrong type.
  nanobind::capsule dlpack(nanobind::handle stream, nanobind::handle max_version, nanobind::handle dl_device,
                           nanobind::handle copy) const;
  nanobind::typed<nanobind::tuple, int, int> dlpack_device() const;

 private:
  Tensor copy() const;
  void order_after_writing(nanobind::handle stream) const;

  std::shared_ptr<SharedBatch> batch_;
  const NamedTensor* tensor_;
};

}  // namespace feedline::python
