#include "pictures/shape/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace feedline::pictures {
namespace {

// Rounds halves to even, as Python's round() does.
int64_t round_even(double x) { return static_cast<int64_t>(std::nearbyint(x)); }

// Returns where the window `spec.crop` lies in a picture of width x height pixels: in the middle, or at random.
Window crop_of(const GeometrySpec& spec, int64_t width, int64_t height, Draws& draws) {
  const Size& crop = *spec.crop;
  if (crop.width > width || crop.height > height)
    throw BadPicture(
        fmt::format("the picture is {} pixels high and {} pixels wide before the crop, but crop.size is {} x {}; "
                    "resize the picture first (crop.after_resize), set crop.padding, or set a smaller crop.size",
                    height, width, crop.height, crop.width));
  const int64_t free_rows = height - crop.height, free_columns = width - crop.width;
  if (!spec.crop_randomly)
    return {round_even(static_cast<double>(free_columns) / 2), round_even(static_cast<double>(free_rows) / 2),
            crop.width, crop.height};
  const int64_t y = draws.below(static_cast<uint32_t>(free_rows + 1));
  const int64_t x = draws.below(static_cast<uint32_t>(free_columns + 1));
  return {x, y, crop.width, crop.height};
}

// Does what torchvision's RandomResizedCrop.get_params() does.
Window area_of(const RandomArea& area, int64_t width, int64_t height, Draws& draws) {
  constexpr int tries = 10;
  const double least_log = std::log(area.least_ratio), most_log = std::log(area.most_ratio);
  for (int i = 0; i < tries; i++) {
    const double pixels = static_cast<double>(width * height) *
                          (area.least_scale + (area.most_scale - area.least_scale) * draws.uniform());
    const double ratio = std::exp(least_log + (most_log - least_log) * draws.uniform());
    const int64_t w = round_even(std::sqrt(pixels * ratio)), h = round_even(std::sqrt(pixels / ratio));
    if (w <= 0 || w > width || h <= 0 || h > height) continue;
    const int64_t y = draws.below(static_cast<uint32_t>(height - h + 1));
    const int64_t x = draws.below(static_cast<uint32_t>(width - w + 1));
    return {x, y, w, h};
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width, h = height;
  if (ratio < area.least_ratio)
    h = round_even(static_cast<double>(w) / area.least_ratio);
  else if (ratio > area.most_ratio)
    w = round_even(static_cast<double>(h) * area.most_ratio);
  w = std::max<int64_t>(w, 1);  // torchvision's window of a very small picture may have no pixels
  h = std::max<int64_t>(h, 1);
  return {(width - w) / 2, (height - h) / 2, w, h};
}

Size resized(const GeometrySpec& spec, int64_t width, int64_t height) {
  if (spec.resize) return *spec.resize;
  if (!spec.shorter) return {height, width};
  const int64_t shorter = std::min(width, height), longer = std::max(width, height);
  const int64_t scaled = *spec.shorter * longer / shorter;
  return width < height ? Size{scaled, *spec.shorter} : Size{*spec.shorter, scaled};
}

}  // namespace

int64_t GeometrySpec::least_resized_height() const noexcept {
  return resize ? resize->height : shorter.value_or(std::numeric_limits<int64_t>::max());
}

std::optional<Size> GeometrySpec::made() const { return crop && (crop_after_resize || !resize) ? crop : resize; }

Geometry geometry_of(const GeometrySpec& spec, int64_t width, int64_t height, Choices choices) {
  Geometry geometry;
  geometry.source = {0, 0, width, height};
  if (spec.area) {
    geometry.source = area_of(*spec.area, width, height, choices.crop);
  } else if (spec.crop && !spec.crop_after_resize) {
    geometry.source = crop_of(spec, width + 2 * spec.padding, height + 2 * spec.padding, choices.crop);
    geometry.source.x -= spec.padding;
    geometry.source.y -= spec.padding;
  }
  const Size size = resized(spec, geometry.source.width, geometry.source.height);
  geometry.width = size.width;
  geometry.height = size.height;
  geometry.made = spec.crop && spec.crop_after_resize ? crop_of(spec, size.width, size.height, choices.crop)
                                                      : Window{0, 0, size.width, size.height};
  geometry.is_mirrored = spec.flip > 0 && choices.flip.uniform() < spec.flip;
  return geometry;
}

}  // namespace feedline::pictures
