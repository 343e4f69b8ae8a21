#include <fmt/format.h>

#include <utility>

#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/pipeline/resolve_picture.h"

namespace feedline::flow {
namespace {

// Returns the number of the feature whose values are pictures: one in each record, or several.
int encoded_pictures(const OutputResolver& of) {
  if (of.config.feature().empty()) of.refuse("feature", "decode_image needs a feature of BYTES; name one");
  const int number = of.feature_number("feature", of.config.feature());
  const FeatureSpec& from = of.feature(number);
  const bool is_sequence = from.kind == FeatureKind::fixed_sequence;
  if (from.dtype != DType::bytes || (!is_sequence && from.kind != FeatureKind::fixed) ||
      from.shape.rank() > (is_sequence ? 0 : 1) || from.shape.elements() == 0)
    of.refuse("decode_image",
              fmt::format("it needs a feature of BYTES; for one picture in each record FIXED without a shape, for "
                          "several pictures FIXED with a shape of one axis, or FIXED_SEQUENCE without a shape; feature "
                          "'{}' is {}",
                          from.name, describe(from)));
  if (is_sequence && from.has_default)
    of.refuse("decode_image",
              fmt::format("rows are padded with zeros; remove default_value from feature '{}'", from.name));
  return number;
}

std::vector<float> for_each_channel(const std::vector<float>& values, float otherwise, int channels) {
  if (values.size() > 1) return values;
  return std::vector<float>(static_cast<size_t>(channels), values.empty() ? otherwise : values[0]);
}

}  // namespace

void add_picture(OutputResolver& of, int number, PictureSpec picture, ImageLayout otherwise) {
  pictures::Finish& finish_as = picture.finish;
  picture.keys.seed = of.seed;
  const auto* decode = std::get_if<pictures::DecodeOptions>(&picture.origin);
  const DType stored = decode && decode->bits == 16 ? DType::uint16 : DType::uint8;
  unpack::UnpackSpec unpack =
      stored_elements(stored, Shape({picture.size.height, picture.size.width, finish_as.channels}));
  const int channel_axis = of.turn(unpack, ImageLayout::hwc, otherwise);
  of.finish(unpack, channel_axis, stored);
  finish_as.dtype = unpack.out;
  finish_as.channels_first = channel_axis == 0;
  if (const auto& normalize = unpack.normalize) {
    finish_as.scale = normalize->scale;
    if (!normalize->mean.empty() || !normalize->std.empty()) {
      finish_as.mean = for_each_channel(normalize->mean, 0, finish_as.channels);
      finish_as.std = for_each_channel(normalize->std, 1, finish_as.channels);
    }
  }
  PictureRows rows{std::move(picture.origin), picture.geometry, std::move(finish_as), picture.keys, of.cache};
  const FeatureSpec& from = of.feature(number);
  of.output.shape = from.shape.rank() > 0 ? unpack.shape.with_rows(from.shape[0]) : unpack.shape;
  if (from.kind == FeatureKind::fixed_sequence) {
    of.output.padded = true;
    of.output.feature = number;
    of.output.steps = std::move(rows);
    return;
  }
  of.add_job({.number = number}, std::move(unpack), static_cast<size_t>(from.shape.elements()));
  of.output.jobs.back().rows = std::move(rows);
}

void resolve_encoded(OutputResolver& of) {
  add_picture(of, encoded_pictures(of), resolve_picture(of.config, of.path), ImageLayout::hwc);
}

}  // namespace feedline::flow
