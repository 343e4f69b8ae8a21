// Cuts a tensor out of a larger one that was finished before.
#pragma once

#include <cstddef>

#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace feedline::pictures {

/// Copies a window of `tensor` to `out`, mirrored left to right if `is_mirrored`. render() has made `tensor` with
/// `finish`, of all pixels of a resized picture of this size. So `out` is what render() makes if Geometry::made is the
/// window.
void copy_window(const std::byte* tensor, const Size& size, const Window& window, bool is_mirrored,
                 const Finish& finish, std::byte* out) noexcept;

}  // namespace feedline::pictures
