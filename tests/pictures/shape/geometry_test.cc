// Windows of pictures: the middle, anywhere, of random area; padding and mirroring.
#include "pictures/shape/geometry.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "support/catch.h"

using namespace feedline;
using namespace feedline::pictures;

namespace {

Choices choices_of(uint64_t key) { return {Draws(key_of({key, 1})), Draws(key_of({key, 2}))}; }

Geometry middle_of(const GeometrySpec& spec, int64_t width, int64_t height) {
  return geometry_of(spec, width, height, choices_of(0));
}

// torchvision.transforms.RandomResizedCrop.get_params(), line by line, with these uniforms in place of torch's.
Window torchvision_area(const RandomArea& area, int64_t width, int64_t height, Draws draws) {
  const auto python_round = [](double x) {
    const double below = std::floor(x), part = x - below;
    return static_cast<int64_t>(part < 0.5 || (part == 0.5 && std::fmod(below, 2) == 0) ? below : below + 1);
  };
  for (int i = 0; i < 10; i++) {
    const double target_area = static_cast<double>(height) * static_cast<double>(width) *
                               (area.least_scale + draws.uniform() * (area.most_scale - area.least_scale));
    const double low = std::log(area.least_ratio), high = std::log(area.most_ratio);
    const double aspect_ratio = std::exp(low + draws.uniform() * (high - low));
    const int64_t w = python_round(std::sqrt(target_area * aspect_ratio));
    const int64_t h = python_round(std::sqrt(target_area / aspect_ratio));
    if (0 < w && w <= width && 0 < h && h <= height) {
      const int64_t y = draws.below(static_cast<uint32_t>(height - h + 1));
      return {draws.below(static_cast<uint32_t>(width - w + 1)), y, w, h};
    }
  }
  const double in_ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width, h = height;
  if (in_ratio < area.least_ratio) h = python_round(static_cast<double>(w) / area.least_ratio);
  if (in_ratio > area.most_ratio) w = python_round(static_cast<double>(h) * area.most_ratio);
  w = std::max<int64_t>(w, 1);  // torchvision lacks this
  h = std::max<int64_t>(h, 1);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

}  // namespace

TEST_CASE("the middle is torchvision's CenterCrop") {
  GeometrySpec spec;
  spec.crop = Size{224, 224};
  CHECK(middle_of(spec, 500, 375).source == Window{138, 76, 224, 224});  // round(138.0), round(75.5) to even
  CHECK(middle_of(spec, 229, 227).source == Window{2, 2, 224, 224});     // round(2.5), round(1.5)
  CHECK(middle_of(spec, 224, 224).source == Window{0, 0, 224, 224});
  CHECK(spec.made() == Size{224, 224});
  spec.shorter = 256;
  spec.crop_after_resize = true;
  const Geometry geometry = middle_of(spec, 500, 375);
  CHECK((geometry.width == 341 && geometry.height == 256));  // int(256 * 500 / 375)
  CHECK(geometry.source == Window{0, 0, 500, 375});
  CHECK(geometry.made == Window{58, 16, 224, 224});
  CHECK(middle_of(spec, 375, 500).height == 341);
  spec.crop = Size{257, 9};
  CHECK_THROWS_AS(middle_of(spec, 500, 375), BadPicture);
}

TEST_CASE("a random window lies anywhere, each place as often as another") {
  GeometrySpec spec;
  spec.crop = Size{30, 28};
  spec.crop_randomly = true;
  std::map<std::pair<int64_t, int64_t>, int> places;
  constexpr int times = 20000;
  for (uint64_t key = 0; key < times; key++) {
    const Geometry geometry = geometry_of(spec, 32, 32, choices_of(key));
    CHECK(geometry.source == geometry_of(spec, 32, 32, choices_of(key)).source);
    places[{geometry.source.x, geometry.source.y}]++;
  }
  REQUIRE(places.size() == 15);  // 5 columns, 3 rows
  double chi_square = 0;
  for (const auto& [place, count] : places) chi_square += std::pow(count - times / 15.0, 2) / (times / 15.0);
  CHECK(chi_square < 36.1);  // 14 degrees of freedom: exceeded by chance once in 1000, and the keys are fixed
}

TEST_CASE("padding moves the window out of the picture") {
  GeometrySpec spec;
  spec.crop = Size{32, 32};
  spec.crop_randomly = true;
  spec.padding = 4;
  int64_t least = 0, most = 0;
  for (uint64_t key = 0; key < 1000; key++) {
    const Window window = geometry_of(spec, 32, 32, choices_of(key)).source;
    least = std::min({least, window.x, window.y});
    most = std::max({most, window.x, window.y});
  }
  CHECK((least == -4 && most == 4));
}

TEST_CASE("a window of random area is torchvision's RandomResizedCrop") {
  GeometrySpec spec;
  spec.resize = Size{224, 224};
  for (const RandomArea& area : {RandomArea{}, RandomArea{0.9, 1, 2, 3}, RandomArea{0.99, 1, 0.2, 0.25}}) {
    spec.area = area;
    for (const auto& [width, height] : {std::pair<int64_t, int64_t>{500, 375}, {375, 500}, {32, 32}, {1, 1}, {700, 40}})
      for (uint64_t key = 0; key < 2000; key++) {
        const Window window = geometry_of(spec, width, height, choices_of(key)).source;
        REQUIRE(window == torchvision_area(area, width, height, choices_of(key).crop));
        REQUIRE((window.x >= 0 && window.y >= 0 && window.width > 0 && window.height > 0));
        REQUIRE((window.x + window.width <= width && window.y + window.height <= height));
      }
  }
}

TEST_CASE("pictures are mirrored as often as asked for") {
  GeometrySpec spec;
  spec.resize = Size{8, 8};
  for (const auto& [probability, least, most] : {std::tuple{0.0, 0, 0}, {0.25, 2350, 2650}, {1.0, 10000, 10000}}) {
    spec.flip = probability;
    int mirrored = 0;
    for (uint64_t key = 0; key < 10000; key++) mirrored += geometry_of(spec, 8, 8, choices_of(key)).is_mirrored;
    CHECK((mirrored >= least && mirrored <= most));
  }
}
