#include "feedline/batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/mul_div.h"
#include "feedline/error.h"
#include "gpu/device/stream_order.h"

namespace feedline {

TensorView Batch::at(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const NamedTensor& tensor : tensors()) {
    if (tensor.name == name) return tensor.tensor;
    names.push_back(tensor.name);
  }
  throw Error(Category::bad_pipeline,
              fmt::format("the batch has no tensor '{}'; its tensors are {}", name, fmt::join(names, ", ")));
}

void Batch::ready_on(Stream stream) const {
  if (content_->order) content_->order->ready_on(stream);
}

void Batch::copy_on(Stream stream, const TensorView& tensor, void* to) const {
  if (tensor.size_bytes() == 0) return;
  if (content_->order)
    content_->order->copy_on(stream, to, tensor.data, tensor.size_bytes());
  else
    std::memcpy(to, tensor.data, tensor.size_bytes());
}

Batch Batch::copy(std::span<const NamedTensor> tensors) const {
  constexpr size_t alignment = 256;  // consumers of DLPack tensors want 64, kernels of GPUs up to 256
  std::vector<gpu::CopyWithin> parts;
  size_t bytes = 0;
  for (const NamedTensor& tensor : tensors) {
    const size_t size = tensor.tensor.size_bytes();
    if (size > 0) parts.push_back({tensor.tensor.data, size, bytes});
    bytes += round_up(size, alignment);
  }
  bytes = std::max(bytes, alignment);

  struct Free {
    void operator()(void* memory) const { ::operator delete (memory, std::align_val_t{alignment}); }
  };
  struct Copied {
    std::unique_ptr<void, Free> on_host;  // the memory of the copies; null if they are in on_device
    std::shared_ptr<gpu::OwnMemory> on_device;
    BatchContent content;
  };
  const auto copied = std::make_shared<Copied>();
  BatchContent& content = copied->content;
  content = *content_;
  content.order = nullptr;
  std::byte* memory = nullptr;
  if (content_->order) {
    copied->on_device = content_->order->copy(parts, bytes);
    content.order = copied->on_device.get();
    memory = copied->on_device->memory();
  } else {
    copied->on_host.reset(::operator new (bytes, std::align_val_t{alignment}));
    memory = static_cast<std::byte*>(copied->on_host.get());
    for (const gpu::CopyWithin& part : parts) std::memcpy(memory + part.to, part.from, part.bytes);
  }
  content.tensors.assign(tensors.begin(), tensors.end());
  for (NamedTensor& tensor : content.tensors) {
    tensor.tensor.data = memory;
    tensor.lent = false;
    memory += round_up(tensor.tensor.size_bytes(), alignment);
  }
  return Batch({copied, &content});
}

void Batch::release_on(Stream stream) {
  if (content_->order) content_->order->release_on(stream);
  content_.reset();
}

}  // namespace feedline
