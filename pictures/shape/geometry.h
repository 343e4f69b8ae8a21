// Which pixels of a picture a tensor has.
#pragma once

#include <cstdint>
#include <optional>

#include "pictures/decode/picture.h"
#include "pictures/shape/render.h"

namespace feedline::pictures {

struct Size {
  int64_t height = 0, width = 0;
  bool operator==(const Size&) const = default;
};

/// What a pipeline says of the size of its pictures. Left out: the picture's own.
struct GeometrySpec {
  std::optional<Size> crop;      // the middle of the picture is cut out, as torchvision's CenterCrop does
  bool crop_after_resize = false;
  std::optional<Size> resize;    // to this size
  std::optional<int64_t> shorter;  // the shorter side to this length, as torchvision's Resize(length) does

  /// Returns the size of the tensor; nullopt if it depends on the picture.
  std::optional<Size> made() const;
};

/// Returns the geometry of a picture. Throws BadPicture if the picture is smaller than the crop.
Geometry geometry_of(const GeometrySpec& spec, int64_t width, int64_t height);

}  // namespace feedline::pictures
