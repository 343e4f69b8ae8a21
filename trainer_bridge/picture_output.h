// An output whose values are pictures, and how people see them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "feedline/element_spec.h"
#include "feedline/pipeline.h"

namespace feedline {

/// An output of UINT8 or floats with the shape [height, width, channels], where there are 1 or 3 channels; or with
/// [channels, height, width], if the pipeline says that its layout is CHW. With windows a row has one such picture for
/// each frame. So the channels are the axis for which `normalize` has its numbers.
class PictureOutput {
 public:
  /// Returns nullopt if the output of the pipeline has another type or shape, or no pixel. If the pipeline does not say
  /// what the axes are, it is also nullopt where the first and the last axis have one length.
  static std::optional<PictureOutput> of(const ElementSpec& element, const Pipeline& pipeline);

  const std::string& name() const noexcept { return name_; }
  int64_t height() const noexcept { return height_; }
  int64_t width() const noexcept { return width_; }
  /// Returns how many pictures a row has: those of windows and of clips.
  int64_t frames() const noexcept { return frames_; }
  int64_t channels() const noexcept { return channels_; }
  /// Returns whether the channels are the first axis of a picture, not the last.
  bool channels_first() const noexcept { return channels_first_; }

  /// Writes the red, green and blue of each pixel of a picture of `tensor`, whose pictures are counted over all rows. A
  /// picture that the output normalises has its values before that. Values beyond 0 to 255 become the nearest of these.
  void to_rgb(const TensorView& tensor, int64_t picture, std::span<uint8_t> rgb) const;

 private:
  std::string name_;
  int64_t height_ = 0, width_ = 0, channels_ = 0, frames_ = 1;
  bool channels_first_ = false;
  // How the pixel x became a value: (x * scale - mean) / std. There is a mean and a std for each channel.
  float scale_ = 1;
  std::vector<float> mean_, std_;
};

}  // namespace feedline
