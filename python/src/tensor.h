// A tensor of a batch, as Python sees it: a DLPack object.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "feedline/batch.h"
#include "feedline/device.h"
#include "feedline/tensor.h"

namespace feedline::python {

/// A batch whose tensors Python holds.
struct SharedBatch {
  explicit SharedBatch(Batch given) : batch(std::move(given)) {}
  Batch batch;
  std::atomic<int64_t> stream = 0;  // the stream that uses it, as DLPack numbers streams; 0: none yet
};

/// Keeps its memory alive: that of the batch that it belongs to, or a copy of its own.
class Tensor {
 public:
  /// A tensor of `batch`, which lies on `device`.
  Tensor(std::shared_ptr<SharedBatch> batch, const NamedTensor& tensor, DeviceId device);
  /// A tensor of memory of its own on the host.
  static Tensor copy_of(const TensorView& view);

  DType dtype() const noexcept { return view_.dtype; }
  const Shape& shape() const noexcept { return view_.shape; }
  size_t size_bytes() const noexcept { return view_.size_bytes(); }
  DeviceId device() const noexcept { return device_; }
  bool lent() const noexcept { return lent_; }
  /// The elements. They must lie on the host.
  std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(view_.data), view_.size_bytes()};
  }

  /// `__dlpack__` of the Python array API standard. Makes a versioned capsule if `max_version` allows it.
  ///
  /// `stream`, for a GPU: None or 1 is CUDA's legacy default stream, 2 the per-thread one, -1 none, anything else the
  /// handle of a stream. All tensors of a batch go to one stream, which must outlive them. The stream waits until the
  /// tensor is written, and the memory goes back to the feeder when the stream has done the work that it has been given
  /// by then. Raises BufferError for a request that cannot be fulfilled.
  nanobind::object dlpack(nanobind::object stream, nanobind::object max_version, nanobind::object dl_device,
                          nanobind::object copy) const;
  nanobind::tuple dlpack_device() const;

 private:
  Tensor() = default;
  void order_after_writing(nanobind::handle stream) const;

  std::shared_ptr<const void> owner_;
  SharedBatch* batch_ = nullptr;  // null if the memory is a copy
  TensorView view_;
  DeviceId device_;
  bool lent_ = false;  // NamedTensor::lent
};

/// Adds the class to the module.
void add_tensor(nanobind::module_& module);

}  // namespace feedline::python
