// Reads the batches of CIFAR-10's "binary version" (cs.toronto.edu/~kriz/cifar.html): the .bin files in its archive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace feedline::tool {

inline constexpr size_t cifar10_image_bytes = 3 * 32 * 32;  // a red, a green and a blue plane

struct Cifar10Batch {
  std::vector<uint8_t> labels;  // 0 to 9
  std::string images;           // cifar10_image_bytes for each label, in the same order
};

/// Reads a batch: for each picture one byte with its label, then its planes. Throws std::runtime_error if the content is
/// anything else.
Cifar10Batch read_cifar10_batch(std::string_view content);

}  // namespace feedline::tool
