#include "pictures/shape/render.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/each_simd_level.h"
#include "base/round_up.h"
#include "gpu/unpack/cast.h"
#include "gpu/unpack/dispatch.h"
#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/png_decoder.h"

namespace feedline::pictures {
namespace {

// to[i] = weight * row[i], or adds it.
FEEDLINE_EACH_SIMD_LEVEL
void weigh(float* __restrict to, const uint8_t* __restrict row, float weight, size_t count, bool add) {
  if (add)
    for (size_t i = 0; i < count; i++) to[i] += weight * static_cast<float>(row[i]);
  else
    for (size_t i = 0; i < count; i++) to[i] = weight * static_cast<float>(row[i]);
}

FEEDLINE_EACH_SIMD_LEVEL
void widen(float* __restrict to, const uint8_t* __restrict row, size_t count) {
  for (size_t i = 0; i < count; i++) to[i] = static_cast<float>(row[i]);
}

template <int channels>
void resize_row(float* __restrict to, const float* __restrict row, const Axis& axis, int64_t pixels) {
  for (int64_t x = 0; x < pixels; x++, to += channels) {
    const Axis::Taps taps = axis[x];
    const float* from = row + (taps.first - axis.first()) * channels;
    float sums[channels];
    for (int c = 0; c < channels; c++) sums[c] = taps.weights[0] * from[c];
    for (size_t k = 1; k < taps.weights.size(); k++) {
      from += channels;
      for (int c = 0; c < channels; c++) sums[c] += taps.weights[k] * from[c];
    }
    for (int c = 0; c < channels; c++) to[c] = sums[c];
  }
}

template <typename T>
T cast(float x) {
  if constexpr (std::is_integral_v<T>)
    return gpu::cast<T>(std::nearbyint(x));
  else
    return gpu::cast<T>(x);
}

// Writes a row of pixels into a tensor of `height` rows.
template <typename T>
void finish_row(const Finish& finish, const float* row, int64_t width, int64_t y, int64_t height, bool is_mirrored,
                T* out) {
  const int64_t channels = finish.channels;
  for (int64_t c = 0; c < channels; c++) {
    const auto channel = static_cast<size_t>(c);
    const bool shifts = !finish.mean.empty();
    const float scale = finish.scale.value_or(1), mean = shifts ? finish.mean[channel] : 0,
                std = shifts ? finish.std[channel] : 1;
    T* to = finish.channels_first ? out + (c * height + y) * width : out + y * width * channels + c;
    int64_t stride = finish.channels_first ? 1 : channels;
    if (is_mirrored) {
      to += (width - 1) * stride;
      stride = -stride;
    }
    for (int64_t x = 0; x < width; x++) {
      float value = row[x * channels + c];
      if (finish.scale) value *= scale;
      if (shifts) value = (value - mean) / std;
      to[x * stride] = cast<T>(value);
    }
  }
}

// The part of a row of scratch memory for `count` elements.
template <typename T>
T* take(std::span<std::byte>& scratch, size_t count) {
  const size_t bytes = round_up(count * sizeof(T), 64);
  T* const taken = reinterpret_cast<T*>(scratch.data());
  scratch = scratch.subspan(bytes);
  return taken;
}

constexpr int64_t longest_row = 65536;  // JPEG's limit; wider PNGs are refused
constexpr int most_channels = 3;

// Reads the rows of a window that may reach out of the picture.
template <typename Decoder>
class PaddedRows {
 public:
  PaddedRows(Decoder& decoder, const Window& wanted, uint8_t fill) : decoder_(decoder), fill_(fill) {
    const int64_t x = std::clamp<int64_t>(wanted.x, 0, decoder.width()),
                  y = std::clamp<int64_t>(wanted.y, 0, decoder.height());
    inside_ = {x, y, std::clamp<int64_t>(wanted.x + wanted.width, 0, decoder.width()) - x,
               std::clamp<int64_t>(wanted.y + wanted.height, 0, decoder.height()) - y};
    const auto channels = static_cast<size_t>(decoder.channels());
    before_ = static_cast<size_t>(x - wanted.x) * channels;
    decoded_ = static_cast<size_t>(inside_.width) * channels;
    all_ = static_cast<size_t>(wanted.width) * channels;
    rows_before_ = y - wanted.y;
    if (!is_outside()) decoder_.begin(inside_);
  }
  void read_row(uint8_t* row) {
    const int64_t y = read_++ - rows_before_;
    if (is_outside() || y < 0 || y >= inside_.height) {
      std::memset(row, fill_, all_);
      return;
    }
    std::memset(row, fill_, before_);
    decoder_.read_row(row + before_);
    std::memset(row + before_ + decoded_, fill_, all_ - before_ - decoded_);
  }
  void finish() {
    if (!is_outside()) decoder_.finish();
  }

 private:
  bool is_outside() const noexcept { return inside_.width <= 0 || inside_.height <= 0; }

  Decoder& decoder_;
  const uint8_t fill_;
  Window inside_;
  size_t before_ = 0, decoded_ = 0, all_ = 0;  // bytes of a row
  int64_t rows_before_ = 0, read_ = 0;
};

template <typename Decoder>
void render_with(Decoder& decoder, const Geometry& geometry, const Finish& finish, std::byte* out,
                 std::span<std::byte> scratch) {
  const Window& source = geometry.source;
  const Axis across(finish.filter, source.width, geometry.width, geometry.made.x, geometry.made.x + geometry.made.width);
  const Axis down(finish.filter, source.height, geometry.height, geometry.made.y, geometry.made.y + geometry.made.height);
  const int64_t columns = across.last() - across.first(), rows = down.last() - down.first();
  const int64_t width = geometry.made.width, height = geometry.made.height;
  const auto channels = static_cast<size_t>(finish.channels);
  const size_t stored = static_cast<size_t>(columns) * channels, made = static_cast<size_t>(width) * channels;
  PaddedRows from(decoder, {source.x + across.first(), source.y + down.first(), columns, rows}, finish.fill);
  const bool is_copy = across.is_copy() && down.is_copy();
  if (is_copy && !geometry.is_mirrored && finish.dtype == DType::uint8 && !finish.channels_first && !finish.scale && finish.mean.empty()) {
    for (int64_t y = 0; y < height; y++) from.read_row(reinterpret_cast<uint8_t*>(out) + static_cast<size_t>(y) * made);
    return from.finish();
  }
  float* const wide = take<float>(scratch, stored);
  float* const resized = take<float>(scratch, made);
  uint8_t* const pixels = take<uint8_t>(scratch, is_copy ? stored : stored * static_cast<size_t>(rows));
  gpu::with_type(finish.dtype, [&](auto type) {
    using T = typename decltype(type)::t;
    int64_t read = 0;  // rows of the source
    for (int64_t y = 0; y < height; y++) {
      const Axis::Taps taps = down[y];
      const int64_t first = taps.first - down.first(), last = first + static_cast<int64_t>(taps.weights.size());
      for (; read < last; read++) from.read_row(pixels + (is_copy ? 0 : static_cast<size_t>(read) * stored));
      if (is_copy) {
        widen(wide, pixels, stored);
      } else {
        for (int64_t row = first; row < last; row++)
          weigh(wide, pixels + static_cast<size_t>(row) * stored, taps.weights[static_cast<size_t>(row - first)], stored,
                row > first);
      }
      const float* row = wide;
      if (!across.is_copy()) {
        channels == 1 ? resize_row<1>(resized, wide, across, width) : resize_row<3>(resized, wide, across, width);
        row = resized;
      }
      finish_row(finish, row, width, y, height, geometry.is_mirrored, reinterpret_cast<T*>(out));
    }
  });
  from.finish();
}

template <typename Decoder>
void decode_and_render(std::span<const std::byte> picture, const DecodeOptions& options, const GeometryOf& geometry_of, const Finish& finish, std::byte* out, std::span<std::byte> scratch) {
  Decoder decoder(picture, options);
  if (decoder.width() > longest_row) throw BadPicture("the picture is wider than 65536 pixels");
  render_with(decoder, geometry_of(decoder.width(), decoder.height()), finish, out, scratch);
}

}  // namespace

uint64_t render_memory(const DecodeOptions& options) {
  constexpr uint64_t rows = 2 * sizeof(float) * most_channels * longest_row, alignment = 3 * 64;
  const auto pixels = static_cast<uint64_t>(options.max_pixels);
  return most_channels * pixels + rows + alignment + decoder_memory(options);
}

void render(std::span<const std::byte> picture, DecodeOptions options, const GeometryOf& geometry_of,
            const Finish& finish, std::byte* out, std::span<std::byte> scratch) {
  options.channels = finish.channels;
  switch (const auto format = format_of(picture); format.value_or(Format::jpeg)) {
    case Format::jpeg:
      if (!format) throw BadPicture("it is neither a JPEG nor a PNG");
      return decode_and_render<JpegDecoder>(picture, options, geometry_of, finish, out, scratch);
    case Format::png:
      return decode_and_render<PngDecoder>(picture, options, geometry_of, finish, out, scratch);
  }
}

}  // namespace feedline::pictures
