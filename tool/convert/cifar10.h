// The batches of CIFAR-10 (cs.toronto.edu/~kriz/cifar.html), as they lie in its archives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace feedline::cli {

inline constexpr size_t cifar10_image_bytes = 3 * 32 * 32;  // red plane, green plane, blue plane

struct Cifar10Batch {
  std::vector<uint8_t> labels;  // 0 to 9
  std::string images;           // cifar10_image_bytes for each label
};

/// "Binary version": for each picture a byte with its label, then the planes. Throws std::runtime_error, as the next.
Cifar10Batch read_binary_batch(std::string_view content);
/// "Python version": a pickled dictionary, its `data` a uint8 array [pictures, 3072], its `labels` a list.
Cifar10Batch read_python_batch(std::string_view content);

}  // namespace feedline::cli
