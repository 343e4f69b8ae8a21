// Cuts the tensor of a window out of a larger tensor that was made before.
#pragma once

#include <cstddef>

#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace feedline::pictures {

/// Copies a window of `tensor` to `out`, mirrored left to right if `is_mirrored`. `tensor` was made by render() with
/// `finish`, from all pixels of a picture that was resized to `size`. So `out` equals what render() makes if
/// Geometry::made is `window`.
void copy_window(const std::byte* tensor, const Size& size, const Window& window, bool is_mirrored,
                 const Finish& finish, std::byte* out) noexcept;

}  // namespace feedline::pictures
