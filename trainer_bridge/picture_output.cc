#include "trainer_bridge/picture_output.h"

#include <cmath>

#include "feedline_pipeline.pb.h"
#include "gpu/unpack/dispatch.h"

namespace feedline {
namespace {

/// Returns what the pipeline says of an output. A feature that is delivered without any `output` has none.
config::Output output_of(const std::string& name, const Pipeline& pipeline) {
  for (const config::Output& output : pipeline.message().output())
    if (output.name() == name) return output;
  return {};
}

bool is_channels(int64_t axis) { return axis == 1 || axis == 3; }

/// Returns a number for each channel, of those that `normalize` has: none, one, or one for each channel.
std::vector<float> for_each_channel(const auto& values, float otherwise, int64_t channels) {
  std::vector<float> all(static_cast<size_t>(channels), values.empty() ? otherwise : static_cast<float>(values[0]));
  for (int i = 0; i < values.size(); i++) all[static_cast<size_t>(i)] = static_cast<float>(values[i]);
  return all;
}

}  // namespace

std::optional<PictureOutput> PictureOutput::of(const ElementSpec& element, const Pipeline& pipeline) {
  const bool is_float = element.dtype == DType::float16 || element.dtype == DType::bfloat16 ||
                        element.dtype == DType::float32 || element.dtype == DType::float64;
  if (element.kind != ElementSpec::Kind::dense || !(is_float || element.dtype == DType::uint8)) return std::nullopt;
  std::span<const int64_t> shape(element.shape.begin(), element.shape.end());
  PictureOutput output;
  if (shape.size() < 3) return std::nullopt;
  for (const int64_t frames : shape.first(shape.size() - 3)) output.frames_ *= frames;
  shape = shape.last(3);
  const config::Output& said = output_of(element.name, pipeline);
  const auto layout = said.layout() == config::Output::AS_IS ? said.decode_raw().layout() : said.layout();
  output.channels_first_ = layout == config::Output::CHW || !is_channels(shape[2]);
  if (!is_channels(shape[output.channels_first_ ? 0 : 2])) return std::nullopt;
  output.name_ = element.name;
  output.channels_ = shape[output.channels_first_ ? 0 : 2];
  output.height_ = shape[output.channels_first_ ? 1 : 0];
  output.width_ = shape[output.channels_first_ ? 2 : 1];
  const config::Normalize& normalize = said.normalize();
  if (normalize.has_scale()) output.scale_ = static_cast<float>(normalize.scale());
  output.mean_ = for_each_channel(normalize.mean(), 0, output.channels_);
  output.std_ = for_each_channel(normalize.std(), 1, output.channels_);
  return output;
}

void PictureOutput::to_rgb(const TensorView& tensor, int64_t picture, std::span<uint8_t> rgb) const {
  const int64_t pixels = height_ * width_;
  gpu::with_type(tensor.dtype, [&](auto type) {
    const auto* from = static_cast<const typename decltype(type)::t*>(tensor.data) + picture * pixels * channels_;
    for (int64_t pixel = 0; pixel < pixels; pixel++)
      for (int64_t colour = 0; colour < 3; colour++) {
        const int64_t channel = channels_ == 1 ? 0 : colour;
        const auto c = static_cast<size_t>(channel);
        const float value =
            gpu::cast<float>(from[channels_first_ ? channel * pixels + pixel : pixel * channels_ + channel]);
        rgb[static_cast<size_t>(pixel * 3 + colour)] =
            gpu::cast<uint8_t>(std::nearbyint((value * std_[c] + mean_[c]) / scale_));
      }
  });
}

}  // namespace feedline
