#include "trainer_bridge/picture_output.h"

#include <cmath>

#include "feedline_pipeline.pb.h"
#include "unpack/dispatch.h"

namespace feedline {
namespace {

/// Returns the `output` of this name in the pipeline. Returns an empty one for a feature that is delivered without an
/// `output`.
config::Output output_of(const std::string& name, const Pipeline& pipeline) {
  for (const config::Output& output : pipeline.message().output())
    if (output.name() == name) return output;
  return {};
}

bool is_channels(int64_t axis) { return axis == 1 || axis == 3; }

/// Returns what the last three axes of the output are; AS_IS if the pipeline does not say what they are.
config::Output::Layout layout_of(const config::Output& said) {
  if (said.layout() != config::Output::AS_IS) return said.layout();
  if (said.has_decode_raw()) return said.decode_raw().layout();
  return said.has_decode_image() || said.has_unpack_bits() ? config::Output::HWC : config::Output::AS_IS;
}

/// Returns whether `values`, a field of `normalize`, has no number, one number, or one for each channel.
bool fits(const auto& values, int64_t channels) { return values.size() <= 1 || values.size() == channels; }

/// Returns a number for each channel. If `values` has only one number, all channels get it; if it has none, they get
/// `otherwise`. Precondition: fits(values, channels).
std::vector<float> for_each_channel(const auto& values, float otherwise, int64_t channels) {
  std::vector<float> all(static_cast<size_t>(channels), values.empty() ? otherwise : static_cast<float>(values[0]));
  for (int i = 1; i < values.size(); i++) all[static_cast<size_t>(i)] = static_cast<float>(values[i]);
  return all;
}

}  // namespace

std::optional<PictureOutput> PictureOutput::of(const ElementSpec& element, const Pipeline& pipeline) {
  const bool is_float = element.dtype == DType::float16 || element.dtype == DType::bfloat16 ||
                        element.dtype == DType::float32 || element.dtype == DType::float64;
  if (element.kind != ElementSpec::Kind::dense || !(is_float || element.dtype == DType::uint8)) return std::nullopt;
  std::span<const int64_t> shape(element.shape.begin(), element.shape.end());
  const size_t frame_axis = pipeline.message().has_window() ? 1 : 0;
  if (shape.size() < frame_axis + 3 || element.shape.elements() == 0) return std::nullopt;
  PictureOutput output;
  for (const int64_t frames : shape.first(shape.size() - 3)) output.frames_ *= frames;
  shape = shape.last(3);
  const config::Output said = output_of(element.name, pipeline);
  const auto layout = layout_of(said);
  // If the first and the last axis have the same length, either could be the channels. But it must be known which axis
  // has the channels, because `normalize` may have a number for each channel.
  if (layout == config::Output::AS_IS && shape[0] == shape[2]) return std::nullopt;
  output.channels_first_ = layout == config::Output::CHW;
  output.channels_ = shape[output.channels_first_ ? 0 : 2];
  const config::Normalize& normalize = said.normalize();
  if (!is_channels(output.channels_) || !fits(normalize.mean(), output.channels_) ||
      !fits(normalize.std(), output.channels_))
    return std::nullopt;
  output.name_ = element.name;
  output.height_ = shape[output.channels_first_ ? 1 : 0];
  output.width_ = shape[output.channels_first_ ? 2 : 1];
  if (normalize.has_scale()) output.scale_ = static_cast<float>(normalize.scale());
  output.mean_ = for_each_channel(normalize.mean(), 0, output.channels_);
  output.std_ = for_each_channel(normalize.std(), 1, output.channels_);
  return output;
}

void PictureOutput::to_rgb(const TensorView& tensor, int64_t picture, std::span<uint8_t> rgb) const {
  const int64_t pixels = height_ * width_;
  unpack::with_type(tensor.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::t*>(tensor.data) + picture * pixels * channels_;
    for (int64_t pixel = 0; pixel < pixels; pixel++)
      for (int64_t colour = 0; colour < 3; colour++) {
        const int64_t channel = channels_ == 1 ? 0 : colour;
        const auto c = static_cast<size_t>(channel);
        const float value =
            unpack::cast<float>(from[channels_first_ ? channel * pixels + pixel : pixel * channels_ + channel]);
        rgb[static_cast<size_t>(pixel * 3 + colour)] =
            unpack::cast<uint8_t>(std::nearbyint((value * std_[c] + mean_[c]) / scale_));
      }
  });
}

}  // namespace feedline
