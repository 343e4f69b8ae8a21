// Decodes and shapes pictures that the input describes, with some of their bytes changed, or any bytes. No byte is
// written past the tensor or the scratch memory. A tensor is what is made of the whole picture, decoded before; a
// window's pixels are those of the whole picture. A picture that was not changed has the size, the orientation and, if
// it is a PNG, the pixels that it was made of. One that is cut short is refused.
// covers: pictures/decode/exif.cc pictures/decode/jpeg_decoder.cc pictures/decode/picture.cc
// covers: pictures/decode/picture_info.cc pictures/decode/png_decoder.cc
// covers: pictures/shape/axis.cc pictures/shape/geometry.cc pictures/shape/render.cc pictures/shape/row_kernels.cc
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/machine.h"
#include "draw.h"
#include "pictures/decode/jpeg_decoder.h"
#include "pictures/decode/picture_info.h"
#include "pictures/decode/pixel_view.h"
#include "pictures/decode/png_decoder.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"
#include "require.h"
#include "tests/pictures/encode.h"

namespace {

using namespace feedline;
using namespace feedline::pictures;
using test::require;
using Bytes = std::span<const std::byte>;

struct Request {
  DecodeOptions decode;
  GeometrySpec geometry;
  Finish finish;
  Window window;
  SimdLevel level;
};

Size draw_size(test::Draw& draw) {
  const auto side = [&] { return static_cast<int64_t>(1 + draw.below(40)); };
  return draw.below(16) == 1 ? Size{257, 256} : Size{side(), side()};
}

Request draw_request(test::Draw& draw) {
  Request request;
  DecodeOptions& decode = request.decode;
  decode.max_pixels = draw.below(8) == 1 ? static_cast<int64_t>(1 + draw.below(1500)) : 1 << 16;
  decode.fast_dct = draw.coin();
  decode.bits = draw.coin() ? 16 : 8;
  decode.apply_exif = draw.coin();
  decode.may_shrink = draw.coin();

  GeometrySpec& geometry = request.geometry;
  switch (draw.below(5)) {
    case 0:
      geometry.crop = draw_size(draw);
      geometry.padding = draw.coin() ? static_cast<int64_t>(draw.below(256)) : 0;
      break;
    case 1:
      geometry.crop = draw_size(draw);
      geometry.resize = draw_size(draw);
      break;
    case 2:
      geometry.shorter = draw_size(draw).height;
      geometry.crop = Size{1 + static_cast<int64_t>(draw.below(static_cast<uint64_t>(*geometry.shorter + 1))), 1};
      geometry.crop_after_resize = true;
      break;
    case 3:
      geometry.area.emplace();
      if (draw.coin()) geometry.area = RandomArea{1, 1, 3, 4};
      if (draw.coin()) geometry.area = RandomArea{1, 1, 0.25, 0.3};
      geometry.resize = draw_size(draw);
      break;
    default:
      geometry.resize = draw_size(draw);
  }
  geometry.crop_randomly = draw.coin();
  geometry.flip = draw.coin() ? 1 : 0;

  constexpr DType types[] = {DType::uint8,    DType::float32, DType::uint16, DType::int8,
                             DType::int16,    DType::uint32,  DType::int32,  DType::int64,
                             DType::bfloat16, DType::float16, DType::float64};
  Finish& finish = request.finish;
  finish.dtype = draw.one_of(types);
  finish.filter = static_cast<Filter>(draw.below(4));
  finish.channels = draw.coin() ? 1 : 3;
  finish.channels_first = draw.coin();
  finish.fill = draw.any<uint8_t>();
  if (draw.coin()) finish.scale = 1 / 255.0f;
  if (draw.coin()) {
    finish.mean.assign(static_cast<size_t>(finish.channels), 0.5f);
    finish.std.assign(static_cast<size_t>(finish.channels), 0.25f);
  }
  decode.channels = finish.channels;
  request.level = static_cast<SimdLevel>(std::min<uint64_t>(draw.below(3), static_cast<uint64_t>(simd_level())));
  const auto place = [&] { return static_cast<int64_t>(draw.any<uint8_t>()); };
  request.window = {place(), place(), place(), place()};
  return request;
}

struct Picture {
  std::string bytes;
  std::optional<test::Pixels> made_of = {};  // if it was not changed
  bool is_cut = false;                       // only its last bytes are missing
  bool is_jpeg = false;
  int orientation = 0;
};

Picture draw_picture(test::Draw& draw) {
  if (draw.coin()) return {std::string(draw.rest())};
  Picture picture;
  picture.is_jpeg = draw.coin();
  const auto side = [&] { return static_cast<int64_t>(1 + draw.below(48)); };
  const int64_t width = side(), height = side();
  const int channels = static_cast<int>(1 + draw.below(4));
  picture.orientation = static_cast<int>(draw.below(10));
  constexpr uint32_t types[] = {3, 4, 1};
  const std::string exif =
      picture.orientation == 0 ? "" : test::exif_of(picture.orientation, draw.coin(), draw.one_of(types));
  if (picture.is_jpeg) {
    const auto pixels = test::picture_of(width, height, channels == 2 ? 3 : channels, draw.any<uint8_t>());
    const bool is_subsampled = draw.coin();
    constexpr J_COLOR_SPACE inks[] = {JCS_CMYK, JCS_YCCK};
    picture.bytes = test::to_jpeg(pixels, {.quality = static_cast<int>(1 + draw.below(100)),
                                           .across = is_subsampled ? 2 : 1,
                                           .down = is_subsampled && draw.coin() ? 2 : 1,
                                           .progressive = draw.coin(),
                                           .restarts = static_cast<int>(draw.below(3)),
                                           .stored = channels == 4 ? draw.one_of(inks) : JCS_YCbCr,
                                           .exif = exif});
    picture.made_of = pixels;
  } else {
    picture.made_of = test::picture_of(width, height, channels, draw.any<uint8_t>());
    picture.bytes =
        test::to_png(*picture.made_of, {.bits = draw.coin() ? 16 : 8, .interlaced = draw.coin(), .exif = exif});
  }
  if (const uint64_t cut = draw.below(64); cut > 0) {
    picture.bytes.resize(picture.bytes.size() - std::min(picture.bytes.size(), cut));
    picture.made_of.reset();
    picture.is_cut = true;
  }
  while (!draw.empty() && !picture.bytes.empty()) {
    const size_t at = draw.any<uint16_t>() % picture.bytes.size();
    const char by = draw.any<char>();
    if (by == 0) continue;
    picture.bytes[at] = static_cast<char>(picture.bytes[at] ^ by);
    picture.made_of.reset();
    picture.is_cut = false;
  }
  return picture;
}

template <typename Sample, typename Decoder>
std::vector<Sample> decoded(Decoder& decoder, const Window& window) {
  const auto row = static_cast<size_t>(window.width * decoder.channels());
  std::vector<Sample> pixels(row * static_cast<size_t>(window.height));
  decoder.begin(window);
  for (size_t y = 0; y < static_cast<size_t>(window.height); y++) {
    if constexpr (std::is_same_v<Sample, uint16_t> && std::is_same_v<Decoder, JpegDecoder>) {
      std::vector<uint8_t> bytes(row);
      decoder.read_row(bytes.data());
      std::ranges::transform(bytes, pixels.data() + y * row, [](int byte) { return static_cast<Sample>(byte * 257); });
    } else {
      decoder.read_row(pixels.data() + y * row);
    }
  }
  decoder.finish();
  return pixels;
}

/// Scratch memory that must not be written past.
class Scratch {
 public:
  explicit Scratch(const Request& request)
      : size_(render_memory(request.decode, request.geometry.least_resized_height())) {
    memory_.resize(std::max(memory_.size(), size_ + guard_bytes));
    std::fill_n(memory_.begin() + static_cast<ptrdiff_t>(size_), guard_bytes, guard);
  }
  ~Scratch() {
    require(std::ranges::count(std::span(memory_).subspan(size_, guard_bytes), guard) == guard_bytes, "scratch memory");
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::span<std::byte> bytes() const { return std::span(memory_).first(size_); }

 private:
  static constexpr ptrdiff_t guard_bytes = 64;
  static constexpr std::byte guard{0x5a};
  static inline std::vector<std::byte> memory_;
  size_t size_;
};

GeometryOf geometry_for(const GeometrySpec& spec) {
  return [&spec](int64_t width, int64_t height) {
    const Geometry geometry = geometry_of(spec, width, height, {Draws(1), Draws(2)});
    const Window &made = geometry.made, &source = geometry.source;
    const Size size = *spec.made();
    require(made.height == size.height && made.width == size.width, "another size than the tensor's");
    require(
        made.x >= 0 && made.y >= 0 && made.x + made.width <= geometry.width && made.y + made.height <= geometry.height,
        "pixels that the resized window does not have");
    require(source.width > 0 && source.height > 0 && source.x >= -spec.padding && source.y >= -spec.padding &&
                source.x + source.width <= width + spec.padding && source.y + source.height <= height + spec.padding,
            "a window past the padding");
    return geometry;
  };
}

test::OutputBlock tensor_of(const Request& request) {
  const Size size = *request.geometry.made();
  return test::OutputBlock(static_cast<size_t>(size.height * size.width * request.finish.channels) *
                           size_of(request.finish.dtype));
}

/// What is made of the pixels in memory must be what render() made of the picture.
template <typename Sample>
void check_tensor(const Request& request, const std::vector<Sample>& pixels, const Window& all, Orientation orientation,
                  const test::OutputBlock& tensor) {
  const int channels = request.finish.channels;
  PixelView<Sample> view{pixels.data(), all.height, all.width, channels, all.width * channels, channels};
  view.turn(orientation);
  const test::OutputBlock again = tensor_of(request);
  const ScopedSimdLevel slow(SimdLevel::portable);
  render(view, geometry_for(request.geometry), request.finish, again.data(), Scratch(request).bytes());
  require(std::ranges::equal(again.span(), tensor.span()), "a tensor is not what the whole picture gives");
}

/// What the comment of Orientation in pictures/decode/picture.h makes of EXIF's numbers.
Orientation orientation_of(int number) {
  const bool is_one = number >= 2 && number <= 8;
  return {is_one && number >= 5, is_one && (number == 2 || number == 3 || number == 6 || number == 7),
          is_one && (number == 3 || number == 4 || number == 7 || number == 8)};
}

void check_lossless(const test::Pixels& made_of, const std::vector<uint8_t>& pixels, int channels) {
  const int colours = made_of.channels <= 2 ? 1 : 3;  // the others are alpha
  if (colours > channels) return;
  for (size_t i = 0; i < pixels.size(); i++) {
    const size_t pixel = i / static_cast<size_t>(channels), c = i % static_cast<size_t>(channels);
    const uint8_t wanted = made_of.bytes[pixel * static_cast<size_t>(made_of.channels) + (colours == 1 ? 0 : c)];
    require(pixels[i] == wanted, "a PNG has other pixels");
  }
}

template <typename Sample, typename Decoder>
void check_decoder(const Request& request, const Picture& picture, Bytes bytes, const test::OutputBlock* tensor) {
  Decoder decoder(bytes, request.decode);
  const Window all{0, 0, decoder.width(), decoder.height()};
  const Orientation orientation = request.decode.apply_exif ? decoder.orientation() : Orientation();
  if (picture.made_of) {
    require(all.width == picture.made_of->width && all.height == picture.made_of->height, "another size");
    require(!request.decode.apply_exif || orientation == orientation_of(picture.orientation), "another orientation");
  }
  const auto pixels = decoded<Sample>(decoder, all);
  if constexpr (std::is_same_v<Sample, uint8_t>)
    if (picture.made_of && !picture.is_jpeg) check_lossless(*picture.made_of, pixels, decoder.channels());
  const bool shrinks = request.decode.may_shrink && std::is_same_v<Decoder, JpegDecoder>;
  if (tensor && (!shrinks || orientation != Orientation())) check_tensor(request, pixels, all, orientation, *tensor);

  Window window{request.window.x % all.width, request.window.y % all.height, 0, 0};
  window.width = 1 + request.window.width % (all.width - window.x);
  window.height = 1 + request.window.height % (all.height - window.y);
  Decoder other(bytes, request.decode);
  const auto part = decoded<Sample>(other, window);
  const auto row = static_cast<size_t>(window.width * decoder.channels());
  for (int64_t y = 0; y < window.height; y++) {
    const auto* from = pixels.data() + ((window.y + y) * all.width + window.x) * decoder.channels();
    require(std::equal(from, from + row, part.data() + static_cast<size_t>(y) * row), "a window has other pixels");
  }
}

template <typename Decoder>
void check_format(const Request& request, const Picture& picture, Bytes bytes, const test::OutputBlock* tensor) {
  if (request.decode.bits == 16)
    check_decoder<uint16_t, Decoder>(request, picture, bytes, tensor);
  else
    check_decoder<uint8_t, Decoder>(request, picture, bytes, tensor);
}

void check_info(const Picture& picture, Bytes bytes) {
  try {
    const PictureInfo info = picture_info(bytes);
    require(info.format == *format_of(bytes), "another format");
    if (picture.made_of)
      require(info.width == picture.made_of->width && info.height == picture.made_of->height &&
                  info.channels == (picture.made_of->channels <= 2 ? 1 : 3),
              "a header is read as another");
  } catch (const BadPicture& why) {
    require(!picture.made_of, "a picture's header is refused");
    require(format_of(bytes) || std::string_view(why.what()).find("neither a JPEG nor a PNG") != std::string_view::npos,
            "bytes of no format are refused for another reason");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  require(decoder_versions().starts_with("libjpeg-turbo "), "the decoders' versions");
  test::Draw draw(data, size);
  const Request request = draw_request(draw);
  const Picture picture = draw_picture(draw);
  const test::ExactBlock block(picture.bytes);
  const Bytes bytes = block.span();
  check_info(picture, bytes);
  const test::OutputBlock tensor = tensor_of(request);
  bool is_made = false;
  try {
    const ScopedSimdLevel limited(request.level);
    render(bytes, request.decode, geometry_for(request.geometry), request.finish, tensor.data(),
           Scratch(request).bytes());
    is_made = true;
  } catch (const BadPicture&) {
  }
  require(!is_made || !picture.is_cut || request.geometry.padding > 0, "a picture that is cut short is decoded");
  const auto format = format_of(bytes);
  if (!format) return 0;
  try {
    (*format == Format::jpeg ? check_format<JpegDecoder> : check_format<PngDecoder>)(request, picture, bytes,
                                                                                     is_made ? &tensor : nullptr);
  } catch (const BadPicture&) {
  }
  return 0;
}
