// Makes DLPack structs of tensors. Such a struct owns the object that keeps the tensor's memory alive.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <type_traits>
#include <utility>

#include "feedline/device.h"
#include "feedline/dlpack.h"
#include "feedline/tensor.h"

namespace feedline::gpu {

inline DLDataType dl_type(DType dtype) {
  const auto of = [&](DLDataTypeCode code) {
    return DLDataType{static_cast<uint8_t>(code), static_cast<uint8_t>(8 * size_of(dtype)), 1};
  };
  switch (dtype) {
    case DType::boolean:
      return of(kDLBool);
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
      return of(kDLInt);
    case DType::bfloat16:
      return of(kDLBfloat);
    case DType::float16:
    case DType::float32:
    case DType::float64:
      return of(kDLFloat);
    default:
      return of(kDLUInt);
  }
}

/// Returns the tensor as a DLManagedTensorVersioned or a DLManagedTensor, which keeps `owner` until its deleter is
/// called. Only the versioned struct has `flags`.
template <typename Managed>
Managed* export_tensor(std::shared_ptr<const void> owner, const TensorView& view, DeviceId device, uint64_t flags) {
  struct Export {
    Managed managed;
    std::shared_ptr<const void> owner;
    std::array<int64_t, Shape::max_rank + 2> shape, strides;
  };
  auto made = std::make_unique<Export>();
  made->owner = std::move(owner);
  std::copy(view.shape.begin(), view.shape.end(), made->shape.begin());
  int64_t stride = 1;
  for (size_t axis = view.shape.rank(); axis-- > 0; stride *= view.shape[axis]) made->strides[axis] = stride;
  const bool on_host = device.kind == DeviceId::Kind::host;
  made->managed.dl_tensor = {.data = view.data,
                             .device = {on_host ? kDLCPU : kDLCUDA, on_host ? 0 : device.ordinal},
                             .ndim = static_cast<int32_t>(view.shape.rank()),
                             .dtype = dl_type(view.dtype),
                             .shape = made->shape.data(),
                             .strides = made->strides.data(),
                             .byte_offset = 0};
  made->managed.manager_ctx = made.get();
  made->managed.deleter = [](Managed* managed) { delete static_cast<Export*>(managed->manager_ctx); };
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>) {
    made->managed.version = {1, 0};
    made->managed.flags = flags;
  }
  return &made.release()->managed;
}

}  // namespace feedline::gpu
