#include "tool/convert/cifar10.h"

#include <fmt/format.h>

#include <stdexcept>

namespace feedline::tool {
namespace {

uint8_t checked_label(uint8_t label, size_t picture) {
  if (label <= 9) return label;
  throw std::runtime_error(fmt::format(
      "picture {} has label {}, but the labels of CIFAR-10 are 0 to 9; download the archive again", picture, label));
}

}  // namespace

Cifar10Batch read_cifar10_batch(std::string_view content) {
  constexpr size_t picture_bytes = 1 + cifar10_image_bytes;
  if (content.empty() || content.size() % picture_bytes != 0)
    throw std::runtime_error(
        fmt::format("the file has {} bytes, but needs a multiple of {} bytes, the size of a "
                    "picture with its label; download the archive again",
                    content.size(), picture_bytes));
  Cifar10Batch batch;
  batch.images.reserve(content.size());
  for (size_t i = 0; i < content.size() / picture_bytes; i++) {
    const std::string_view picture = content.substr(i * picture_bytes, picture_bytes);
    batch.labels.push_back(checked_label(static_cast<uint8_t>(picture[0]), i));
    batch.images += picture.substr(1);
  }
  return batch;
}

}  // namespace feedline::tool
