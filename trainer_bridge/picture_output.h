// Recognises outputs whose values are pictures, and converts the pictures to RGB, as people see them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "feedline/element_spec.h"
#include "feedline/pipeline.h"

namespace feedline {

/// An output of UINT8 or floats whose values are pictures with 1 or 3 channels. A picture has the shape [height, width,
/// channels], or [channels, height, width] if the pipeline says that the layout is CHW. With windows a row has one such
/// picture for each frame. If `normalize` has several numbers, it has one for each channel.
class PictureOutput {
 public:
  /// Returns nullopt if the type or shape of the output is not one of those above, or if a picture has no pixels. If
  /// the pipeline does not say what the axes are, also returns nullopt if the first and the last axis of a picture have
  /// the same length.
  static std::optional<PictureOutput> of(const ElementSpec& element, const Pipeline& pipeline);

  const std::string& name() const noexcept { return name_; }
  int64_t height() const noexcept { return height_; }
  int64_t width() const noexcept { return width_; }
  /// Returns how many pictures a row has. With windows and clips it may have more than one.
  int64_t frames() const noexcept { return frames_; }
  int64_t channels() const noexcept { return channels_; }
  /// Returns whether the channels are the first axis of a picture, not the last.
  bool channels_first() const noexcept { return channels_first_; }

  /// Writes the red, green and blue of each pixel of one picture of `tensor` to `rgb`. `picture` is the number of the
  /// picture, counted from 0 over all rows. If the output is normalised, first computes the values that the pixels had
  /// before they were normalised. A value below 0 becomes 0, and a value above 255 becomes 255.
  void to_rgb(const TensorView& tensor, int64_t picture, std::span<uint8_t> rgb) const;

 private:
  std::string name_;
  int64_t height_ = 0, width_ = 0, channels_ = 0, frames_ = 1;
  bool channels_first_ = false;
  // The pixel x has become the value (x * scale - mean) / std. There is a mean and a std for each channel.
  float scale_ = 1;
  std::vector<float> mean_, std_;
};

}  // namespace feedline
