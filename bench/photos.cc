#include "photos.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/flowgraph/example_writer.h"

namespace feedline::bench {
namespace {

// Values of the pixels of a picture, row by row.
struct Plane {
  int64_t width, height;
  std::vector<float> values;
};

// Adds random values at a lattice of `cell` pixels, and what lies on straight lines between them.
void add_details(Plane& plane, int64_t cell, float amplitude, Random& random) {
  const int64_t columns = plane.width / cell + 2, rows = plane.height / cell + 2;
  std::uniform_real_distribution<float> uniform(-amplitude, amplitude);
  std::vector<float> lattice(static_cast<size_t>(columns * rows));
  for (float& value : lattice) value = uniform(random);
  float* to = plane.values.data();
  for (int64_t y = 0; y < plane.height; y++)
    for (int64_t x = 0; x < plane.width; x++) {
      const float* above = &lattice[static_cast<size_t>(y / cell * columns + x / cell)];
      const float* below = above + columns;
      const float right = static_cast<float>(x % cell) / static_cast<float>(cell);
      const float down = static_cast<float>(y % cell) / static_cast<float>(cell);
      *to++ += std::lerp(std::lerp(above[0], above[1], right), std::lerp(below[0], below[1], right), down);
    }
}

// Returns a plane with details from `finest` pixels on.
Plane plane_of(int64_t width, int64_t height, int64_t finest, float amplitude, Random& random) {
  constexpr int64_t coarsest = 128;
  constexpr float falloff = 0.4f;  // of amplitudes towards fine details
  Plane plane{width, height, std::vector<float>(static_cast<size_t>(width * height))};
  for (int64_t cell = coarsest; cell >= finest; cell /= 2)
    add_details(plane, cell, amplitude * std::pow(static_cast<float>(cell) / coarsest, falloff), random);
  return plane;
}

test::Pixels photo(Random& random, int64_t width, int64_t height) {
  const Plane grey = plane_of(width, height, 1, 60, random), red = plane_of(width, height, 8, 20, random),
              blue = plane_of(width, height, 8, 20, random);
  test::Pixels pixels{width, height, 3, {}};
  const auto add = [&](float value) {
    pixels.bytes.push_back(static_cast<uint8_t>(std::clamp(std::nearbyint(128 + value), 0.0f, 255.0f)));
  };
  for (size_t i = 0; i < grey.values.size(); i++) {
    add(grey.values[i] + red.values[i]);
    add(grey.values[i] - (red.values[i] + blue.values[i]) / 2);
    add(grey.values[i] + blue.values[i]);
  }
  return pixels;
}

}  // namespace

std::vector<test::Pixels> make_photos(size_t count) {
  Random random(1);
  std::vector<test::Pixels> photos;
  for (size_t i = 0; i < count; i++) photos.push_back(photo(random, 500, 375));
  return photos;
}

std::string record_of(const std::string& picture) {
  namespace write = test::wire;
  return write::example(write::entry("file_name", write::bytes_feature({"n01440764_10026.JPEG"})) +
                        write::entry("image", write::bytes_feature({picture})) +
                        write::entry("label", write::int64_feature({0})));
}

}  // namespace feedline::bench
