// Decides which pixels of a picture a tensor is made of.
#pragma once

#include <cstdint>
#include <optional>

#include "base/draws.h"
#include "pictures/decode/picture.h"
#include "pictures/shape/render.h"

namespace feedline::pictures {

struct Size {
  int64_t height = 0, width = 0;
  bool operator==(const Size&) const = default;
};

/// A window of random area and shape, as torchvision's RandomResizedCrop chooses it. The defaults are torchvision's.
struct RandomArea {
  double least_scale = 0.08, most_scale = 1;           // as shares of the picture's area
  double least_ratio = 3.0 / 4, most_ratio = 4.0 / 3;  // width / height
  bool operator==(const RandomArea&) const = default;
};

/// The window and the size of pictures, as a pipeline gives them. Without a window the whole picture is taken, and
/// without a size the window is not resized.
struct GeometrySpec {
  std::optional<Size> crop = {};        // a window of this size
  std::optional<RandomArea> area = {};  // a random window, in place of `crop`
  bool crop_randomly = false;           // anywhere in the picture, as torchvision's RandomCrop; else as its CenterCrop
  bool crop_after_resize = false;
  int64_t padding = 0;                  // pixels that are added on each side of the picture before it is cropped
  std::optional<Size> resize = {};      // to this size
  std::optional<int64_t> shorter = {};  // the shorter side to this length, as torchvision's Resize(length)
  double flip = 0;                      // the probability of mirroring

  bool operator==(const GeometrySpec&) const = default;
  /// Returns the minimum height of a resized picture; a large number if pictures are not resized.
  int64_t least_resized_height() const noexcept;
  /// Returns the size of the tensor; nullopt if it depends on the picture.
  std::optional<Size> made() const;
};

/// The random numbers for the crop and the flip of a picture. If two pictures have the same key for a choice (see
/// Draws), the choice is the same.
struct Choices {
  Draws crop, flip;
};

/// Returns the geometry of a picture. Throws BadPicture if the picture is smaller than the crop.
Geometry geometry_of(const GeometrySpec& spec, int64_t width, int64_t height, Choices choices);

}  // namespace feedline::pictures
