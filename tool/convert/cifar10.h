// Reads the batches of CIFAR-10 (cs.toronto.edu/~kriz/cifar.html), as they are in its archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace feedline::cli {

inline constexpr size_t cifar10_image_bytes = 3 * 32 * 32;  // a red, a green and a blue plane

struct Cifar10Batch {
  std::vector<uint8_t> labels;  // 0 to 9
  std::string images;           // cifar10_image_bytes for each label, in the same order
};

/// Reads a batch of the "binary version": for each picture one byte with its label, then its planes. Throws
/// std::runtime_error if the content is anything else.
Cifar10Batch read_binary_batch(std::string_view content);
/// Reads a batch of the "python version": a pickled dictionary whose `data` is a uint8 array [pictures, 3072] and whose
/// `labels` is a list. Throws std::runtime_error if the content is anything else.
Cifar10Batch read_python_batch(std::string_view content);

}  // namespace feedline::cli
