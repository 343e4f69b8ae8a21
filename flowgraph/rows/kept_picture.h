// What of a picture is the same in every epoch, and can be kept: its pixels after decoding, or after resizing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "flowgraph/rows/cache_spec.h"
#include "flowgraph/rows/row_writer.h"
#include "pictures/decode/picture.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace feedline::flow {

/// Pixels of UINT8 that lie in a feature's bytes, as decode_raw says.
struct StoredPixels {
  int64_t height = 0, width = 0;
  int channels = 0;
  bool channels_first = false;
};

/// What a picture is made from: an encoded one, or pixels.
using PictureOrigin = std::variant<pictures::DecodeOptions, StoredPixels>;

/// Cuts the way of a picture in two: the steps before the first random choice, whose result is an entry of a cache, and
/// the steps after them. Both together make the same bytes as the whole way. Immutable.
///
/// An entry with pixels as they were decoded, or of pictures whose resized size varies, begins with height and width.
/// Any other is the tensor of the resized picture.
class KeptPicture {
 public:
  /// step().text is empty if nothing can be kept.
  KeptPicture(PictureOrigin origin, const pictures::GeometrySpec& geometry, const pictures::Finish& finish,
              const CacheSpec& cache);

  const KeptStep& step() const noexcept { return step_; }
  /// Returns the bytes of the entry of a picture. Throws BadPicture.
  uint64_t bytes_of(std::span<const std::byte> picture) const;
  /// Returns whether an entry is the row itself, because no random choice follows.
  bool is_row() const noexcept { return is_row_; }

  /// Makes the entry of a picture. Returns false if it must not be kept: the decoder gave warnings, which are to be
  /// counted whenever the picture is used. Throws BadPicture.
  bool make(std::span<const std::byte> picture, std::span<std::byte> entry, std::span<std::byte> scratch) const;
  /// Returns whether an entry is as long as its pixels, or the size at its beginning, say. One on a disk may be none of
  /// make(), although its sums are right.
  bool is_whole(std::span<const std::byte> entry) const noexcept;
  /// Makes a row from an entry that is whole. Throws BadPicture if the picture is smaller than its crop.
  void finish(std::span<const std::byte> entry, pictures::Choices choices, std::byte* out,
              std::span<std::byte> scratch) const;

 private:
  void keep_decoded();
  void keep_resized();
  uint64_t most_pixels() const;
  pictures::Size entry_size(std::span<const std::byte> picture) const;
  pictures::Geometry kept_geometry(int64_t width, int64_t height) const;

  const PictureOrigin origin_;
  const pictures::Finish finish_;
  pictures::GeometrySpec before_, after_;  // the geometry up to the entry, and from there on
  pictures::Finish finish_of_entry_;
  std::optional<pictures::Size> size_;  // of the picture in an entry, if all have one
  KeptStep step_;
  bool is_row_ = false;
  bool is_window_ = true;  // a row is a window of the entry, without any arithmetic
  uint64_t pixel_bytes_ = 0;
};

/// Returns a view of the pixels of decode_raw.
pictures::PixelView<uint8_t> view_of(const StoredPixels& stored, std::span<const std::byte> bytes);

}  // namespace feedline::flow
