// Resizing, compared with Pillow and OpenCV (tests/golden/resize), and what becomes of the pixels after it.
#include "pictures/shape/render.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <string>

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
                        const Finish& finish, int64_t elements) {
  const DecodeOptions options{.max_pixels = 1 << 20};
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
      CHECK(std::string(bad.what()) == "it is neither a JPEG nor a PNG");
    }
  }
}
