#include "feedline/batch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

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
              fmt::format("the batch has no tensor '{}'; it has {}", name, fmt::join(names, ", ")));
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

void Batch::release_on(Stream stream) {
  if (content_->order) content_->order->release_on(stream);
  content_.reset();
}

}  // namespace feedline
