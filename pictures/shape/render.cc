#include "pictures/shape/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/float_environment.h"
#include "base/machine.h"
#include "base/mul_div.h"
#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/pixel_view.h"
#include "pictures/decode/png_decoder.h"
#include "pictures/shape/row_kernels.h"
#include "unpack/kernels.h"

namespace feedline::pictures {
namespace {

// Allocates memory for `count` elements at the front of `scratch`, and shortens `scratch` by it.
template <typename T>
T* take(std::span<std::byte>& scratch, size_t count) {
  const size_t bytes = round_up(count * sizeof(T), 64);
  T* const taken = reinterpret_cast<T*>(scratch.data());
  scratch = scratch.subspan(bytes);
  return taken;
}

constexpr int most_channels = 3;

// Returns how many rows of the source are in memory at a time, if `taps` of them are added to make one row of the
// result.
constexpr int64_t rows_kept(size_t taps) { return 2 * static_cast<int64_t>(taps); }

// Reads the rows of a window as Samples. The window may reach out of the picture; pixels outside have the value `fill`.
template <typename Decoder, typename Sample>
class PaddedRows {
 public:
  PaddedRows(Decoder& decoder, const Window& wanted, uint8_t fill)
      : decoder_(decoder), fill_(static_cast<Sample>(fill * full<Sample> / full<uint8_t>)) {
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
  void read_row(Sample* row) {
    const int64_t y = read_++ - rows_before_;
    if (is_outside() || y < 0 || y >= inside_.height) {
      std::fill_n(row, all_, fill_);
      return;
    }
    std::fill_n(row, before_, fill_);
    read_decoded(row + before_);
    std::fill_n(row + before_ + decoded_, all_ - before_ - decoded_, fill_);
  }
  void finish() {
    if (!is_outside()) decoder_.finish();
  }

 private:
  bool is_outside() const noexcept { return inside_.width <= 0 || inside_.height <= 0; }

  void read_decoded(Sample* row) {
    if constexpr (requires { decoder_.read_row(row); }) {
      decoder_.read_row(row);
    } else {  // the decoder has samples of 8 bits: widens them to 16 bits in place
      uint8_t* const bytes = reinterpret_cast<uint8_t*>(row) + decoded_;
      decoder_.read_row(bytes);
      for (size_t i = 0; i < decoded_; i++) row[i] = static_cast<Sample>(bytes[i] * full<Sample> / full<uint8_t>);
    }
  }

  template <typename T>
  static constexpr int full = std::numeric_limits<T>::max();

  Decoder& decoder_;
  const Sample fill_;
  Window inside_;
  size_t before_ = 0, decoded_ = 0, all_ = 0;  // samples of a row: left of the picture, decoded, and in total
  int64_t rows_before_ = 0, read_ = 0;
};

// Writes rows of the tensor: normalises, casts and lays out.
class RowFinisher {
 public:
  RowFinisher(const Finish& finish, int64_t width, int64_t height, std::byte* out, std::span<std::byte>& scratch)
      : finish_(finish),
        kernels_(unpack::kernels_for(simd_level())),
        row_kernels_(row_kernels(simd_level())),
        size_(size_of(finish.dtype)),
        width_(static_cast<size_t>(width)),
        height_(static_cast<size_t>(height)),
        channels_(static_cast<size_t>(finish.channels)),
        out_(out),
        planes_(take<std::byte>(scratch, channels_ * width_ * size_)) {}

  // Writes row y. Channel c begins at planes + c * plane. Changes the planes.
  void write(float* planes, size_t plane, size_t y) const {
    constexpr float one = 1, zero = 0;
    const auto from_float = kernels_.cast[static_cast<size_t>(DType::float32)][static_cast<size_t>(finish_.dtype)];
    const bool shifts = !finish_.mean.empty();
    for (size_t c = 0; c < channels_; c++) {
      float* const row = planes + c * plane;
      if (finish_.normalizes())
        kernels_.normalize(row, width_,
                           {finish_.scale ? &*finish_.scale : &one, shifts ? &finish_.mean[c] : &zero,
                            shifts ? &finish_.std[c] : &one, true});
      if (finish_.is_integer()) row_kernels_.round(row, width_);
      from_float(reinterpret_cast<const std::byte*>(row),
                 finish_.channels_first ? out_ + (c * height_ + y) * width_ * size_ : planes_ + c * width_ * size_,
                 width_);
    }
    if (finish_.channels_first) return;
    std::byte* const to = out_ + y * width_ * channels_ * size_;
    if (channels_ == 1)
      std::memcpy(to, planes_, width_ * size_);
    else
      kernels_.interleave[std::countr_zero(size_)](planes_, static_cast<int64_t>(width_ * size_), channels_, to,
                                                   width_ * channels_);
  }

 private:
  const Finish& finish_;
  const unpack::Kernels& kernels_;
  const RowKernels& row_kernels_;
  const size_t size_, width_, height_, channels_;
  std::byte* const out_;
  std::byte* const planes_;  // one row, in which each channel is still a plane of its own
};

template <typename Sample>
RowKernels::AddRows<Sample> add_rows_of(const RowKernels& kernels) {
  if constexpr (sizeof(Sample) == 1)
    return kernels.add_rows_of_bytes;
  else
    return kernels.add_rows_of_words;
}

template <typename Sample>
void mirror(Sample* row, size_t pixels, size_t channels) {
  if (pixels == 0) return;
  for (size_t left = 0, right = pixels - 1; left < right; left++, right--)
    std::swap_ranges(row + left * channels, row + (left + 1) * channels, row + right * channels);
}

template <typename Sample, typename Decoder>
void render_with(Decoder& decoder, const Geometry& geometry, const Finish& finish, std::byte* out,
                 std::span<std::byte> scratch) {
  const Window &source = geometry.source, &window = geometry.made;
  const Axis across(finish.filter, source.width, geometry.width, window.x, window.x + window.width,
                    geometry.is_mirrored);
  const Axis down(finish.filter, source.height, geometry.height, window.y, window.y + window.height);
  const int64_t columns = across.last() - across.first(), rows = down.last() - down.first();
  const auto channels = static_cast<size_t>(finish.channels), width = static_cast<size_t>(window.width),
             height = static_cast<size_t>(window.height), stored = static_cast<size_t>(columns) * channels;
  PaddedRows<Decoder, Sample> from(decoder, {source.x + across.first(), source.y + down.first(), columns, rows},
                                   finish.fill);
  const bool is_stored_type = finish.dtype == (sizeof(Sample) == 1 ? DType::uint8 : DType::uint16);
  if (across.is_copy() && down.is_copy() && is_stored_type && (!finish.channels_first || channels == 1) &&
      !finish.scale && finish.mean.empty()) {
    for (size_t y = 0; y < height; y++) {
      auto* const row = reinterpret_cast<Sample*>(out) + y * width * channels;
      from.read_row(row);
      if (geometry.is_mirrored) mirror(row, width, channels);
    }
    return from.finish();
  }
  const DefaultFloatEnvironment floats;
  const RowKernels& kernels = row_kernels(simd_level());
  const RowFinisher finisher(finish, window.width, window.height, out, scratch);
  constexpr size_t vector = 4;  // elements that the kernels may read or write past the end
  const size_t plane = width + vector, readable = stored + across.most_taps() * channels + vector;
  float* const planes = take<float>(scratch, plane * channels);
  float* const sums = take<float>(scratch, readable);
  std::fill(sums + stored, sums + readable, 0.0f);
  // `samples` has room for `places` rows of the source; the first of them is row `base`. When all places are taken, the
  // rows that are still needed move to the beginning.
  const int64_t places = std::min(rows, rows_kept(down.most_taps()));
  auto* const samples = take<Sample>(scratch, stored * static_cast<size_t>(places));
  const auto row_at = [&](int64_t place) { return samples + static_cast<size_t>(place) * stored; };
  int64_t base = 0, read = 0;
  const RowKernels::Taps taps{across.firsts(), across.first(), across.weights(), across.stride(), across.most_taps()};
  for (size_t y = 0; y < height; y++) {
    const Axis::Taps vertical = down[static_cast<int64_t>(y)];
    const int64_t first = vertical.first - down.first(), last = first + static_cast<int64_t>(vertical.weights.size());
    if (last > base + places) {
      if (read > first)
        std::memmove(samples, row_at(first - base), static_cast<size_t>(read - first) * stored * sizeof(Sample));
      base = first;
    }
    for (; read < last; read++) from.read_row(row_at(std::max(read, first) - base));  // earlier rows are overwritten
    add_rows_of<Sample>(kernels)(sums, row_at(first - base), stored, vertical.weights.data(), vertical.weights.size(),
                                 stored);
    (channels == 1 ? kernels.add_grey_pixels : kernels.add_colour_pixels)(planes, plane, sums, taps, width);
    finisher.write(planes, plane, y);
  }
  from.finish();
}

// Throws BadPicture if the window is too large for the scratch memory.
void check_source(const Geometry& geometry, int64_t max_pixels) {
  const Window& source = geometry.source;
  if (source.width > longest_side || source.height > max_pixels / std::max<int64_t>(1, source.width))
    throw BadPicture(fmt::format("a window of {} x {} pixels is larger than decode_image.max_pixels allows ({} pixels)",
                                 source.width, source.height, max_pixels));
}

// Decodes the whole picture, and returns a view of its pixels that is turned as the orientation says.
template <typename Sample, typename Decoder>
PixelView<Sample> upright(Decoder& decoder, Orientation orientation, std::span<std::byte>& scratch) {
  const int64_t channels = decoder.channels(), width = decoder.width(), height = decoder.height(),
                row = width * channels;
  auto* const pixels = take<Sample>(scratch, static_cast<size_t>(row * height));
  PaddedRows<Decoder, Sample> rows(decoder, {0, 0, width, height}, 0);
  for (int64_t y = 0; y < height; y++) rows.read_row(pixels + y * row);
  rows.finish();
  PixelView<Sample> view{pixels, height, width, decoder.channels(), row, channels};
  view.turn(orientation);
  return view;
}

// Lets a JPEG be decoded to a half, a quarter or an eighth of its size, if the window is then still at least as large
// as what it is resized to. Changes the window accordingly.
void shrink(JpegDecoder& decoder, Geometry& geometry) {
  Window& source = geometry.source;
  if (source.x < 0 || source.y < 0 || source.x + source.width > decoder.width() ||
      source.y + source.height > decoder.height())
    return;
  for (const int by : {8, 4, 2}) {
    if (source.width < by * geometry.width || source.height < by * geometry.height) continue;
    const int64_t right = source.x + source.width, bottom = source.y + source.height;
    decoder.shrink(by);
    source.x /= by;
    source.y /= by;
    source.width = std::min((right + by - 1) / by, decoder.width()) - source.x;
    source.height = std::min((bottom + by - 1) / by, decoder.height()) - source.y;
    return;
  }
}

// Decodes the picture and writes the tensor. Returns how many warnings the decoder gave.
template <typename Sample, typename Decoder>
uint64_t render_decoded(Decoder& decoder, const DecodeOptions& options, const GeometryOf& geometry_of,
                        const Finish& finish, std::byte* out, std::span<std::byte> scratch) {
  const Orientation orientation = options.apply_exif ? decoder.orientation() : Orientation();
  if (orientation == Orientation()) {
    Geometry geometry = geometry_of(decoder.width(), decoder.height());
    check_source(geometry, options.max_pixels);
    if constexpr (std::is_same_v<Decoder, JpegDecoder>)
      if (options.may_shrink) shrink(decoder, geometry);
    render_with<Sample>(decoder, geometry, finish, out, scratch);
    return decoder.warnings();
  }
  auto view = upright<Sample>(decoder, orientation, scratch);
  const Geometry geometry = geometry_of(view.width(), view.height());
  check_source(geometry, options.max_pixels);
  render_with<Sample>(view, geometry, finish, out, scratch);
  return decoder.warnings();
}

template <typename Decoder>
uint64_t decode_and_render(std::span<const std::byte> picture, const DecodeOptions& options,
                           const GeometryOf& geometry_of, const Finish& finish, std::byte* out,
                           std::span<std::byte> scratch) {
  Decoder decoder(picture, options);
  return options.bits == 16 ? render_decoded<uint16_t>(decoder, options, geometry_of, finish, out, scratch)
                            : render_decoded<uint8_t>(decoder, options, geometry_of, finish, out, scratch);
}

}  // namespace

uint64_t render_memory(const DecodeOptions& options, int64_t resized_height) {
  constexpr uint64_t elements = most_channels * longest_side;
  constexpr uint64_t rows = (3 * sizeof(float) + sizeof(double)) * elements, alignment = 1024;
  const auto sample = static_cast<uint64_t>(options.bits / 8);
  const uint64_t picture = most_channels * sample * static_cast<uint64_t>(options.max_pixels);
  // If n rows become m, a filter adds at most 2 n / m + 3 rows, and twice as many are in memory (rows_kept()). The n
  // rows of c columns have at most as many pixels as the picture: n * c <= max_pixels.
  const uint64_t kept = std::min(picture, 4 * picture / static_cast<uint64_t>(resized_height) +
                                              rows_kept(3) * most_channels * sample * longest_side);
  return (options.apply_exif ? picture : 0) + kept + rows + alignment;
}

void render(PixelView<uint8_t> pixels, const GeometryOf& geometry_of, const Finish& finish, std::byte* out,
            std::span<std::byte> scratch) {
  render_with<uint8_t>(pixels, geometry_of(pixels.width(), pixels.height()), finish, out, scratch);
}

void render(PixelView<uint16_t> pixels, const GeometryOf& geometry_of, const Finish& finish, std::byte* out,
            std::span<std::byte> scratch) {
  render_with<uint16_t>(pixels, geometry_of(pixels.width(), pixels.height()), finish, out, scratch);
}

uint64_t render(std::span<const std::byte> picture, DecodeOptions options, const GeometryOf& geometry_of,
                const Finish& finish, std::byte* out, std::span<std::byte> scratch) {
  options.channels = finish.channels;
  switch (const auto format = format_of(picture); format.value_or(Format::jpeg)) {
    case Format::jpeg:
      if (!format) throw BadPicture(no_format(picture));
      return decode_and_render<JpegDecoder>(picture, options, geometry_of, finish, out, scratch);
    case Format::png:
      return decode_and_render<PngDecoder>(picture, options, geometry_of, finish, out, scratch);
  }
  return 0;
}

}  // namespace feedline::pictures
