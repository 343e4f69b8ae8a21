// Resizes along one axis: computes from which source pixels each output pixel is made, and with which weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace feedline::pictures {

/// The ways to compute a pixel of a resized picture. If n pixels become m, the centre of pixel i of the result lies at
/// (i + 1/2) n/m in the source.
enum class Filter : uint8_t {
  bilinear,              // between the two nearest pixels: OpenCV's INTER_LINEAR, torch's interpolate
  bilinear_antialiased,  // when shrinking, a triangle over all pixels that it covers: Pillow, torchvision's antialias
  area,     // the mean over the covered area: tf.image's area, OpenCV's INTER_AREA if both axes shrink or grow
  nearest,  // the pixel (2 i + 1) n div 2 m: torch's nearest-exact, tf.image's nearest
};

/// The weights of one axis. Each sum is computed in FLOAT32, in ascending order of the source's pixels.
class Axis {
 public:
  /// Prepares to resize `from` pixels to `to` pixels, of which only the pixels [begin, end) are made. If `is_mirrored`,
  /// they are made in reverse order, pixel end - 1 first.
  Axis(Filter filter, int64_t from, int64_t to, int64_t begin, int64_t end, bool is_mirrored = false);

  /// Returns whether pixel i of the result is a copy of pixel i of the source.
  bool is_copy() const noexcept { return is_copy_; }
  /// The pixels [first(), last()) of the source are those that the result is made from.
  int64_t first() const noexcept { return first_; }
  int64_t last() const noexcept { return last_; }

  /// The neighbouring pixels of the source that are added to make one pixel, and the weight of each.
  struct Taps {
    int64_t first;  // the first of these pixels
    std::span<const float> weights;
  };
  /// Returns the taps of the i-th pixel that is made.
  Taps operator[](int64_t i) const noexcept {
    const auto at = static_cast<size_t>(i);
    return {firsts_[at], std::span(weights_).subspan(at * stride_, counts_[at])};
  }

  /// Return the taps of all pixels as arrays. The weights of pixel i begin at weights() + i * stride(). No pixel has
  /// more than most_taps() weights; a pixel's last weight is followed by zeros.
  const int64_t* firsts() const noexcept { return firsts_.data(); }
  const float* weights() const noexcept { return weights_.data(); }
  size_t stride() const noexcept { return stride_; }
  size_t most_taps() const noexcept { return most_taps_; }

 private:
  bool is_copy_;
  size_t stride_, most_taps_ = 0;
  int64_t first_, last_ = 0;
  std::vector<int64_t> firsts_;
  std::vector<size_t> counts_;
  std::vector<float> weights_;
};

}  // namespace feedline::pictures
