// Statistics of a feature whose values are encoded pictures, and how a pipeline decodes such a feature.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tool/common/pipeline_text.h"

namespace feedline::tool {

/// What the headers of pictures say.
struct PictureStats {
  uint64_t jpeg = 0, png = 0;  // how many pictures of each format have a header that can be read
  uint64_t grey = 0;           // how many of these pictures have no colours
  int64_t width_min = 0, width_max = 0, height_min = 0, height_max = 0, pixels_max = 0;

  /// Counts one value of the feature. Ignores a value that is not a picture, or whose header cannot be read.
  void add(std::span<const std::byte> value);
  void add(const PictureStats& other);

  uint64_t count() const noexcept { return jpeg + png; }
  /// Returns whether a feature with this number of values is a feature of pictures: more than half of its values were
  /// counted here. The remaining values may be pictures that cannot be read.
  bool are_most_of(uint64_t values) const noexcept { return 2 * count() > values; }
  bool one_size() const noexcept { return width_min == width_max && height_min == height_max; }
};

/// Returns a text for people: "JPEG and PNG, 53 x 61 to 640 x 480, 1 and 3 channels, 2 cannot be read". `values` is the
/// number of the feature's values.
std::string describe(const PictureStats& pictures, uint64_t values);

/// Lets the pipeline decode the values of `feature`, whose statistics are `pictures`, and resize them to one size.
/// `values` is the number of the feature's values, and `most` is the maximum number of values in a record.
void decode_pictures(TextFeature& feature, const PictureStats& pictures, uint64_t values, uint64_t most = 1);

}  // namespace feedline::tool
