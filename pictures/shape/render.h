// Makes the pixels of a tensor from an encoded picture: decode, resize, normalise, cast and layout in one pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "feedline/tensor.h"
#include "pictures/decode/picture.h"
#include "pictures/decode/pixel_view.h"
#include "pictures/shape/axis.h"

namespace feedline::pictures {

/// Selects the pixels of a tensor: the window `source` of the picture is resized to `width` x `height`, and the tensor
/// is the window `made` of the result. Pixels of `source` outside of the picture have the value Finish::fill.
struct Geometry {
  Window source;
  int64_t width = 0, height = 0;
  Window made;
  bool is_mirrored = false;  // left to right
};

/// Says how elements of a tensor are made from the values x of pixels: (x * scale - mean) / std is computed in FLOAT32,
/// with each step rounded, and then cast. Integers are rounded to nearest even and saturate.
struct Finish {
  DType dtype = DType::uint8;
  Filter filter = Filter::bilinear;
  int channels = 3;
  uint8_t fill = 0;
  bool channels_first = false;  // the tensor is [channels, height, width], else [height, width, channels]
  std::optional<float> scale = {};
  std::vector<float> mean = {}, std = {};  // none, or one for each channel

  bool operator==(const Finish&) const = default;
  bool normalizes() const noexcept { return scale || !mean.empty(); }
  bool is_integer() const noexcept { return dtype >= DType::uint8 && dtype <= DType::int64; }
};

/// Returns how many bytes of scratch memory render() needs, besides decoder_memory(), if Geometry::height is at least
/// `resized_height` or there is no resize.
uint64_t render_memory(const DecodeOptions& options, int64_t resized_height = 1);

/// A function that returns the geometry for a picture of width x height pixels.
using GeometryOf = std::function<Geometry(int64_t width, int64_t height)>;

/// Decodes the picture and writes the tensor of `finish` at `out`. Returns how many warnings the decoder gave. Throws
/// BadPicture; then the tensor may have any content. `scratch` has render_memory() bytes. `geometry_of` may throw
/// BadPicture, too.
uint64_t render(std::span<const std::byte> picture, DecodeOptions options, const GeometryOf& geometry_of,
                const Finish& finish, std::byte* out, std::span<std::byte> scratch);

/// Make the tensor from pixels that lie in memory. `scratch` has render_memory() bytes for options with the bits of
/// these samples and with a max_pixels that is at least the number of pixels in the window Geometry::source.
void render(PixelView<uint8_t> pixels, const GeometryOf& geometry_of, const Finish& finish, std::byte* out,
            std::span<std::byte> scratch);
void render(PixelView<uint16_t> pixels, const GeometryOf& geometry_of, const Finish& finish, std::byte* out,
            std::span<std::byte> scratch);

}  // namespace feedline::pictures
