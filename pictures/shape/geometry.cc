#include "pictures/shape/geometry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace feedline::pictures {
namespace {

// Returns the middle of a picture. Half a pixel is rounded to even, as Python's round() does.
Window middle(const Size& crop, int64_t width, int64_t height) {
  if (crop.width > width || crop.height > height)
    throw BadPicture(fmt::format("the picture has {} x {} pixels there, and crop.size takes {} x {} out of it; make it "
                                 "larger with resize first (crop.after_resize), or crop less",
                                 width, height, crop.width, crop.height));
  const auto half = [](int64_t free) { return static_cast<int64_t>(std::nearbyint(static_cast<double>(free) / 2)); };
  return {half(width - crop.width), half(height - crop.height), crop.width, crop.height};
}

Size resized(const GeometrySpec& spec, int64_t width, int64_t height) {
  if (spec.resize) return *spec.resize;
  if (!spec.shorter) return {height, width};
  const int64_t shorter = std::min(width, height), longer = std::max(width, height);
  const int64_t scaled = std::max<int64_t>(1, *spec.shorter * longer / shorter);
  return width < height ? Size{scaled, *spec.shorter} : Size{*spec.shorter, scaled};
}

}  // namespace

std::optional<Size> GeometrySpec::made() const { return crop && (crop_after_resize || !resize) ? crop : resize; }

Geometry geometry_of(const GeometrySpec& spec, int64_t width, int64_t height) {
  Geometry geometry;
  geometry.source = {0, 0, width, height};
  if (spec.crop && !spec.crop_after_resize) geometry.source = middle(*spec.crop, width, height);
  const Size size = resized(spec, geometry.source.width, geometry.source.height);
  geometry.width = size.width;
  geometry.height = size.height;
  geometry.made = spec.crop && spec.crop_after_resize ? middle(*spec.crop, size.width, size.height)
                                                      : Window{0, 0, size.width, size.height};
  return geometry;
}

}  // namespace feedline::pictures
