// Resizing, compared with Pillow and OpenCV (tests/golden/resize), and what becomes of the pixels after it.
#include "pictures/shape/render.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "base/machine.h"
#include "manifest.h"
#include "pictures/encode.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::pictures;
using namespace feedline::test;

namespace {

/// Renders a picture into elements of type T.
template <typename T>
std::vector<T> rendered(const std::string& picture, const std::function<Geometry(int64_t, int64_t)>& geometry_of,
                        const Finish& finish, int64_t elements, DecodeOptions options = {}) {
  options.max_pixels = 1 << 20;
  std::vector<std::byte> scratch(render_memory(options));
  std::vector<T> out(static_cast<size_t>(elements));
  render(std::as_bytes(std::span(picture)), options, geometry_of, finish, reinterpret_cast<std::byte*>(out.data()),
         scratch);
  return out;
}

Geometry whole_to(int64_t width, int64_t height, int64_t from_width, int64_t from_height) {
  return {{0, 0, from_width, from_height}, width, height, {0, 0, width, height}, false};
}

struct Golden {
  std::map<std::string, NpyArray> arrays = load_npz(std::string(FEEDLINE_GOLDEN) + "/resize/resize.npz");
  Pixels source{63, 47, 3, {}};
  std::string png;
  Golden() {
    const auto bytes = arrays.at("source").as<uint8_t>();
    source.bytes.assign(bytes.begin(), bytes.end());
    png = to_png(source);
  }
};

constexpr std::pair<const char*, Filter> filters[] = {{"bilinear", Filter::bilinear},
                                                      {"bilinear_antialiased", Filter::bilinear_antialiased},
                                                      {"area", Filter::area},
                                                      {"nearest", Filter::nearest}};

}  // namespace

TEST_CASE("resizing is Pillow's and OpenCV's, up to rounding") {
  const Golden golden;
  std::map<std::string, int> compared;
  for (const auto& [name, array] : golden.arrays) {
    if (name == "source") continue;
    const std::string filter_name = name.substr(0, name.find('.'));
    Filter filter = Filter::bilinear;
    for (const auto& [other, value] : filters)
      if (filter_name == other) filter = value;
    const int64_t height = array.shape[0], width = array.shape[1];
    const auto got = rendered<float>(
        golden.png, [&](int64_t w, int64_t h) { return whole_to(width, height, w, h); },
        {.dtype = DType::float32, .filter = filter}, width * height * 3);
    const auto wanted = array.as<float>();
    REQUIRE(wanted.size() == got.size());
    float furthest = 0;
    for (size_t i = 0; i < got.size(); i++) furthest = std::max(furthest, std::abs(wanted[i] - got[i]));
    INFO(name);
    CHECK(furthest <= (filter == Filter::nearest ? 0 : 6e-5f));
    compared[filter_name]++;
  }
  CHECK(compared ==
        std::map<std::string, int>{{"area", 4}, {"bilinear", 6}, {"bilinear_antialiased", 6}, {"nearest", 6}});
}

TEST_CASE("the same size is a copy, with every filter") {
  const Golden golden;
  for (const auto& [name, filter] : filters) {
    const auto got = rendered<uint8_t>(
        golden.png, [](int64_t w, int64_t h) { return whole_to(w, h, w, h); }, {.filter = filter}, 63 * 47 * 3);
    CHECK(got == golden.source.bytes);
  }
}

TEST_CASE("a window of a resized picture has the pixels of all of it") {
  const Golden golden;
  for (const auto& [name, filter] : filters)
    for (const auto& [width, height] : {std::pair<int64_t, int64_t>{31, 20}, {70, 90}, {63, 20}}) {
      INFO(name << " " << width << "x" << height);
      const Finish finish{.dtype = DType::float32, .filter = filter};
      const Window source{5, 3, 50, 40};
      const auto whole = rendered<float>(
          golden.png,
          [&](int64_t, int64_t) {
            return Geometry{source, width, height, {0, 0, width, height}, false};
          },
          finish, width * height * 3);
      const Window made{width / 3, height / 4, width / 2, height / 2};
      const auto part = rendered<float>(
          golden.png,
          [&](int64_t, int64_t) {
            return Geometry{source, width, height, made, false};
          },
          finish, made.width * made.height * 3);
      for (int64_t y = 0; y < made.height; y++)
        REQUIRE(std::memcmp(part.data() + y * made.width * 3, whole.data() + ((made.y + y) * width + made.x) * 3,
                            static_cast<size_t>(made.width) * 3 * sizeof(float)) == 0);
    }
}

TEST_CASE("pixels are normalised, cast, and laid out") {
  const Golden golden;
  const auto same = [](int64_t w, int64_t h) { return whole_to(w, h, w, h); };
  const std::vector<float> mean = {0.485f, 0.456f, 0.406f}, std = {0.229f, 0.224f, 0.225f};
  const auto planes = rendered<float>(
      golden.png, same,
      {.dtype = DType::float32, .channels_first = true, .scale = 1 / 255.0f, .mean = mean, .std = std}, 63 * 47 * 3);
  for (size_t i = 0; i < 63 * 47; i++)
    for (size_t c = 0; c < 3; c++) {
      const float scaled = static_cast<float>(golden.source.bytes[3 * i + c]) * (1 / 255.0f);
      REQUIRE(planes[c * 63 * 47 + i] == (scaled - mean[c]) / std[c]);
    }
  const auto half = [](int64_t w, int64_t h) { return whole_to(20, 15, w, h); };
  const Finish exact{.dtype = DType::float32, .filter = Filter::area};
  const auto floats = rendered<float>(golden.png, half, exact, 20 * 15 * 3);
  const auto bytes = rendered<uint8_t>(golden.png, half, {.filter = Filter::area}, 20 * 15 * 3);
  for (size_t i = 0; i < floats.size(); i++) REQUIRE(bytes[i] == std::nearbyint(floats[i]));
}

TEST_CASE("a window may reach out of the picture, and may be mirrored") {
  const Golden golden;
  const Window window{-5, 40, 70, 12};
  for (const bool mirrored : {false, true})
    for (const bool planes : {false, true}) {
      Finish finish;
      finish.fill = 9;
      finish.channels_first = planes;
      const auto got = rendered<uint8_t>(
          golden.png,
          [&](int64_t, int64_t) {
            return Geometry{window, window.width, window.height, {0, 0, window.width, window.height}, mirrored};
          },
          finish, window.width * window.height * 3);
      for (int64_t y = 0; y < window.height; y++)
        for (int64_t x = 0; x < window.width; x++)
          for (int64_t c = 0; c < 3; c++) {
            const int64_t at = (mirrored ? window.width - 1 - x : x) + window.x, row = y + window.y;
            const bool inside = at >= 0 && at < 63 && row < 47;
            const int wanted = inside ? golden.source.bytes[static_cast<size_t>((row * 63 + at) * 3 + c)] : 9;
            const int64_t place = planes ? (c * window.height + y) * window.width + x : (y * window.width + x) * 3 + c;
            REQUIRE(int{got[static_cast<size_t>(place)]} == wanted);
          }
    }
  const auto nothing = rendered<uint8_t>(
      golden.png,
      [&](int64_t, int64_t) {
        return Geometry{{100, 100, 4, 4}, 4, 4, {0, 0, 4, 4}, false};
      },
      {}, 48);
  CHECK(nothing == std::vector<uint8_t>(48, 0));
}

TEST_CASE("all levels of SIMD make the same bits") {
  const std::string jpeg = to_jpeg(picture_of(301, 203, 3, 6)), grey = to_png(picture_of(97, 61, 1, 7), {.bits = 16});
  for (const auto& [name, filter] : filters)
    for (const DType dtype :
         {DType::uint8, DType::int16, DType::float16, DType::bfloat16, DType::float32, DType::float64})
      for (const bool planes : {false, true})
        for (const int channels : {1, 3})
          for (const auto& [width, height] : {std::pair<int64_t, int64_t>{224, 170}, {37, 29}, {310, 203}, {1, 1}}) {
            const Finish finish{.dtype = dtype,
                                .filter = filter,
                                .channels = channels,
                                .channels_first = planes,
                                .scale = 0.7f,
                                .mean = std::vector<float>(static_cast<size_t>(channels), 31.3f),
                                .std = std::vector<float>(static_cast<size_t>(channels), 1.7f)};
            const auto made = [&](SimdLevel level) {
              const ScopedSimdLevel scoped(level);
              return rendered<std::byte>(channels == 1 ? grey : jpeg,
                                         [&](int64_t w, int64_t h) { return whole_to(width, height, w, h); }, finish,
                                         width * height * channels * static_cast<int64_t>(size_of(dtype)),
                                         {.bits = channels == 1 ? 16 : 8});
            };
            const auto portable = made(SimdLevel::portable);
            INFO(name << " " << width << "x" << height << " " << feedline::name(dtype) << " channels " << channels);
            REQUIRE(made(SimdLevel::avx2) == portable);
            REQUIRE(made(SimdLevel::avx512) == portable);
          }
}

TEST_CASE("rows come and go in scratch memory of the size that is asked for") {
  const Pixels pixels = picture_of(40, 3000, 3, 4);
  const std::string png = to_png(pixels);
  const DecodeOptions options{.max_pixels = 40 * 3000};
  for (const auto& [name, filter] : filters)
    for (const int64_t height : {1, 7, 300, 2999, 6100}) {
      INFO(name << " " << height);
      const auto geometry = [&](int64_t w, int64_t h) { return whole_to(40, height, w, h); };
      const Finish finish{.dtype = DType::float32, .filter = filter};
      std::vector<std::byte> scratch(render_memory(options, height) + 1, std::byte{0x5a}),
          out(static_cast<size_t>(40 * height) * 12);
      render(std::as_bytes(std::span(png)), options, geometry, finish, out.data(),
             std::span(scratch).first(scratch.size() - 1));
      CHECK(scratch.back() == std::byte{0x5a});
      const Axis down(filter, 3000, height, 0, height);
      for (int64_t y = 0; y < height; y += 1 + height / 50)
        for (int64_t i = 0; i < 120; i++) {
          const Axis::Taps taps = down[y];
          float sum = 0;
          for (size_t k = 0; k < taps.weights.size(); k++)
            sum +=
                taps.weights[k] * pixels.bytes[static_cast<size_t>((taps.first + static_cast<int64_t>(k)) * 120 + i)];
          float got;
          std::memcpy(&got, out.data() + (y * 120 + i) * 4, sizeof got);
          REQUIRE(got == sum);
        }
    }
}

TEST_CASE("pictures of 16 bits, and pictures of 8 bits as 16") {
  const Pixels pixels = picture_of(40, 30, 3, 2);
  const auto same = [](int64_t w, int64_t h) { return whole_to(w, h, w, h); };
  for (const bool is_jpeg : {false, true}) {
    const std::string bytes = is_jpeg ? to_jpeg(pixels) : to_png(pixels, {.bits = 16});
    const auto narrow = rendered<uint8_t>(bytes, same, {}, 40 * 30 * 3);
    const auto wide = rendered<uint16_t>(bytes, same, {.dtype = DType::uint16}, 40 * 30 * 3, {.bits = 16});
    for (size_t i = 0; i < wide.size(); i++)
      REQUIRE(wide[i] == narrow[i] * 256 + (is_jpeg ? narrow[i] : 255 - narrow[i]));
    const auto floats =
        rendered<float>(bytes, same, {.dtype = DType::float32, .scale = 1 / 65535.0f}, 40 * 30 * 3, {.bits = 16});
    for (size_t i = 0; i < wide.size(); i++) REQUIRE(floats[i] == wide[i] * (1 / 65535.0f));
  }
}

TEST_CASE("pictures are turned as their EXIF data says, before anything else") {
  const Pixels stored = picture_of(24, 16, 3, 3);
  for (int value = 1; value <= 8; value++)
    for (const bool is_jpeg : {false, true}) {
      const std::string exif = exif_of(value, value % 2 == 0), plain = is_jpeg ? to_jpeg(stored) : to_png(stored),
                        turned = is_jpeg ? to_jpeg(stored, {.exif = exif}) : to_png(stored, {.exif = exif});
      const auto pixels = rendered<uint8_t>(
          plain, [](int64_t w, int64_t h) { return whole_to(w, h, w, h); }, {}, 24 * 16 * 3);
      const int64_t width = value > 4 ? 16 : 24, height = value > 4 ? 24 : 16;
      const Window window{3, 2, 9, 11};
      const auto got =
          rendered<uint8_t>(turned,
                            [&](int64_t w, int64_t h) {
                              CHECK((w == width && h == height));
                              return Geometry{window, window.width, window.height, {0, 0, window.width, window.height}};
                            },
                            {}, window.width * window.height * 3, {.apply_exif = true});
      for (int64_t y = 0; y < window.height; y++)
        for (int64_t x = 0; x < window.width; x++) {
          const int64_t column = x + window.x, row = y + window.y;
          // Where the pixel is stored, by the table of the EXIF standard.
          const std::pair<int64_t, int64_t> places[] = {
              {column, row}, {23 - column, row}, {23 - column, 15 - row}, {column, 15 - row},
              {row, column}, {row, 15 - column}, {23 - row, 15 - column}, {23 - row, column}};
          const auto& [at_x, at_y] = places[value - 1];
          for (int64_t c = 0; c < 3; c++)
            REQUIRE(got[static_cast<size_t>((y * window.width + x) * 3 + c)] ==
                    pixels[static_cast<size_t>((at_y * 24 + at_x) * 3 + c)]);
        }
      const auto ignored = rendered<uint8_t>(
          turned, [](int64_t w, int64_t h) { return whole_to(w, h, w, h); }, {}, 24 * 16 * 3);
      CHECK(ignored == pixels);
    }
}

TEST_CASE("a large window may be decoded smaller, which changes the pixels a little") {
  Pixels smooth{640, 480, 3, {}};
  for (int i = 0; i < 640 * 480 * 3; i++)
    smooth.bytes.push_back(static_cast<uint8_t>((i / 3 % 640 + i / 1920) * 255 / 1118));
  const std::string jpeg = to_jpeg(smooth, {.quality = 95});
  const Finish finish{.dtype = DType::float32, .filter = Filter::bilinear_antialiased};
  for (const auto& [width, height, changes] :
       {std::tuple<int64_t, int64_t, bool>{400, 300, false}, {320, 240, true}, {100, 70, true}, {60, 50, true}}) {
    const auto geometry = [&](int64_t, int64_t) {
      return Geometry{{0, 0, 640, 480}, width, height, {0, 0, width, height}};
    };
    const auto full = rendered<float>(jpeg, geometry, finish, width * height * 3);
    const auto smaller = rendered<float>(jpeg, geometry, finish, width * height * 3, {.may_shrink = true});
    CHECK((full != smaller) == changes);
    double apart = 0;
    for (size_t i = 0; i < full.size(); i++) apart += std::abs(full[i] - smaller[i]);
    CHECK(apart / static_cast<double>(full.size()) < 0.5);  // of 255, on average
  }
}

TEST_CASE("pixels in memory are shaped as decoded ones are") {
  const Pixels pixels = picture_of(63, 47, 3, 9);
  const std::string png = to_png(pixels);
  std::vector<uint8_t> planes(pixels.bytes.size());
  for (size_t i = 0; i < planes.size(); i++) planes[i % 3 * 63 * 47 + i / 3] = pixels.bytes[i];
  PixelView<uint8_t> interleaved{pixels.bytes.data(), 47, 63, 3, 63 * 3, 3},
      apart{planes.data(), 47, 63, 3, 63, 1, 63 * 47};
  std::vector<std::byte> scratch(render_memory({.max_pixels = 63 * 47}));
  for (const auto& geometry : {Geometry{{-4, -4, 63, 47}, 63, 47, {0, 0, 63, 47}, true},
                               Geometry{{5, 3, 40, 30}, 20, 25, {2, 3, 17, 19}, false}})
    for (const DType dtype : {DType::uint8, DType::float32}) {
      const auto size = geometry.made.width * geometry.made.height * 3 * static_cast<int64_t>(size_of(dtype));
      const Finish finish{.dtype = dtype, .fill = 7};
      const auto decide = [&](int64_t, int64_t) { return geometry; };
      const auto wanted = rendered<std::byte>(png, decide, finish, size);
      for (const auto& view : {interleaved, apart}) {
        std::vector<std::byte> got(wanted.size());
        render(view, decide, finish, got.data(), scratch);
        CHECK(got == wanted);
      }
    }
}

TEST_CASE("one channel is resized as three are") {
  const Pixels grey = picture_of(50, 40, 1, 5);
  const std::string png = to_png(grey);
  const auto half = [](int64_t w, int64_t h) { return whole_to(21, 17, w, h); };
  for (const auto& [name, filter] : filters) {
    const auto one = rendered<float>(png, half, {.dtype = DType::float32, .filter = filter, .channels = 1}, 21 * 17);
    const auto three = rendered<float>(png, half, {.dtype = DType::float32, .filter = filter}, 21 * 17 * 3);
    for (size_t i = 0; i < one.size(); i++)
      for (size_t c = 0; c < 3; c++) REQUIRE(three[3 * i + c] == one[i]);
  }
}

TEST_CASE("what is no picture is refused") {
  const auto same = [](int64_t w, int64_t h) { return whole_to(w, h, w, h); };
  for (const char* text : {"", "GIF89a", "no picture"}) {
    try {
      rendered<uint8_t>(text, same, {}, 1);
      FAIL("no error");
    } catch (const BadPicture& bad) {
      CHECK(std::string(bad.what()).find("neither a JPEG nor a PNG") != std::string::npos);
    }
  }
}
