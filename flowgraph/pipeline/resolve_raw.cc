#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "flowgraph/pipeline/output_resolver.h"
#include "flowgraph/pipeline/resolve_features.h"
#include "flowgraph/pipeline/resolve_picture.h"

namespace feedline::flow {
namespace {

StoredPixels pixels_of(const OutputResolver& of, const Shape& shape, DType stored, ImageLayout layout) {
  if (layout == ImageLayout::unknown)
    of.refuse("decode_raw.layout", "'crop', 'resize' and 'flip' need the order of the axes; write HWC or CHW");
  if (stored != DType::uint8)
    of.refuse("decode_raw.stored", fmt::format("it is {}, but 'crop', 'resize' and 'flip' work only on pictures of "
                                               "UINT8; remove them, or store the pictures as UINT8",
                                               config::DType_Name(of.config.decode_raw().stored())));
  const bool channels_first = layout == ImageLayout::chw;
  const int64_t channels = shape[channels_first ? 0 : 2];
  if (channels != 1 && channels != 3)
    of.refuse("decode_raw.shape",
              fmt::format("the picture has {} channels, but 'crop', 'resize' and 'flip' work only on pictures of 1 or "
                          "3 channels; remove them",
                          channels));
  return {shape[channels_first ? 1 : 0], shape[channels_first ? 2 : 1], static_cast<int>(channels), channels_first};
}

}  // namespace

void resolve_raw(OutputResolver& of) {
  const int number = of.bytes_feature("decode_raw");
  const FeatureSpec& from = of.feature(number);
  const config::DecodeRaw& raw = of.config.decode_raw();
  const DType stored = stored_dtype(raw);
  if (stored == DType::bytes)
    of.refuse("decode_raw.stored",
              "BYTES is not a type of numbers; write the type of the stored numbers, such as UINT8");
  unpack::UnpackSpec unpack = stored_elements(stored, resolve_shape(raw.shape(), of.path + ": decode_raw.shape", 1));
  unpack.big_endian = raw.big_endian();
  const int64_t bytes = unpack.shape.elements() * static_cast<int64_t>(size_of(stored));
  if (bytes != from.length)
    of.refuse("decode_raw.shape", fmt::format("shape {} of {} takes {} bytes, but feature '{}' has {} bytes; correct "
                                              "decode_raw.shape, decode_raw.stored or the feature's 'length'",
                                              to_string(unpack.shape), name(stored), bytes, from.name, from.length));
  const ImageLayout layout = layout_of(raw.layout());
  if (layout != ImageLayout::unknown && unpack.shape.rank() != 3)
    of.refuse("decode_raw.layout", fmt::format("it needs a shape of 3 axes, not {}", to_string(unpack.shape)));
  if (std::ranges::any_of(of.shaping(), [](const auto& field) { return field.second; }))
    return add_picture(of, number, resolve_picture(of.config, of.path, pixels_of(of, unpack.shape, stored, layout)),
                       layout);
  const int channel_axis = of.turn(unpack, layout);
  of.finish(unpack, channel_axis, stored);
  of.output.shape = unpack.shape;
  of.add_job({.number = number}, std::move(unpack));
}

}  // namespace feedline::flow
