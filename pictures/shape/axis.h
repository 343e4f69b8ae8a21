// Resizing along one axis: which pixels an output pixel is made of, and their weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace feedline::pictures {

/// How a pixel of a resized picture is computed. With n pixels of m, the pixel i of the result has its centre at
/// (i + 1/2) n/m of the source.
enum class Filter : uint8_t {
  bilinear,              // between the two nearest pixels: OpenCV's INTER_LINEAR, torch's interpolate
  bilinear_antialiased,  // when shrinking, a triangle over all pixels that it covers: Pillow, torchvision's antialias
  area,                  // the mean over the covered area: OpenCV's INTER_AREA, tf.image's area
  nearest,               // the pixel (2 i + 1) n div 2 m: Pillow, torch's nearest-exact, tf.image's nearest
};

/// The weights of one axis. Each of its sums is computed in FLOAT32, in ascending order of the source's pixels.
class Axis {
 public:
  /// Resizes `from` pixels to `to`, of which those in [begin, end) are made.
  Axis(Filter filter, int64_t from, int64_t to, int64_t begin, int64_t end);

  /// Returns whether each pixel is a copy of the one at its place.
  bool is_copy() const noexcept { return is_copy_; }
  /// The source's pixels [first(), last()) are needed for all pixels that are made.
  int64_t first() const noexcept { return first_; }
  int64_t last() const noexcept { return last_; }

  struct Taps {
    int64_t first;  // the first pixel of the source
    std::span<const float> weights;
  };
  /// Returns the taps of pixel begin + i.
  Taps operator[](int64_t i) const noexcept {
    const auto at = static_cast<size_t>(i);
    return {firsts_[at], std::span(weights_).subspan(begins_[at], begins_[at + 1] - begins_[at])};
  }

 private:
  bool is_copy_;
  int64_t first_, last_;
  std::vector<int64_t> firsts_;
  std::vector<size_t> begins_;  // in weights_
  std::vector<float> weights_;
};

}  // namespace feedline::pictures
