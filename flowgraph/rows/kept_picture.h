// Makes what a cache keeps of a picture, because it is the same in every epoch: the picture's pixels after decoding, or
// after resizing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "flowgraph/rows/row_spec.h"
#include "pictures/decode/pixel_view.h"

namespace feedline::flow {

/// Returns whether a pipeline with this cache keeps pictures.
inline bool keeps_pictures(const std::optional<CacheSpec>& cache) noexcept {
  return cache && cache->what != CacheWhat::records;
}

/// Cuts the steps that make a row from a picture in two parts. The first part ends before the first random choice, and
/// its result is an entry of a cache. The second part makes the row from the entry. Both parts together make the same
/// bytes as all steps at once. Immutable.
///
/// An entry with decoded pixels begins with height and width. So does an entry with a resized picture, if the size of
/// resized pictures varies. Any other entry is just the tensor of the resized picture.
class KeptPicture {
 public:
  /// If a cache can keep nothing, step().text is empty, and step().why_not says why.
  KeptPicture(PictureOrigin origin, const pictures::GeometrySpec& geometry, const pictures::Finish& finish,
              const CacheSpec& cache);

  const KeptStep& step() const noexcept { return step_; }
  /// Returns how many bytes the entry of a picture has. Throws BadPicture if the picture's header cannot be read, or if
  /// the picture is too large, or smaller than its crop.
  uint64_t bytes_of(std::span<const std::byte> picture) const;
  /// Returns whether an entry is the row itself, because no random choice follows.
  bool is_row() const noexcept { return is_row_; }

  /// Makes the entry of a picture. Returns false if the entry must not be kept, because the decoder gave warnings:
  /// warnings are counted whenever the picture is used, so the picture must be decoded each time. Throws BadPicture if
  /// the picture cannot be decoded, or is smaller than its crop.
  bool make(std::span<const std::byte> picture, std::span<std::byte> entry, std::span<std::byte> scratch) const;
  /// Returns whether an entry has the length that it must have. If the entry begins with height and width, they say
  /// this length. This must be checked because a cache file on a disk may have been written by something other than
  /// make(), although its checksums are right.
  bool is_whole(std::span<const std::byte> entry) const noexcept;
  /// Makes a row from an entry for which is_whole() is true. Throws BadPicture if the picture is smaller than its crop.
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
  pictures::GeometrySpec before_, after_;  // the geometry that makes the entry; that makes a row from the entry
  pictures::Finish finish_of_entry_;
  std::optional<pictures::Size> size_;  // of the picture in each entry, if all have the same size
  KeptStep step_;
  bool is_row_ = false;
  bool is_window_ = true;  // a row is a copy of a rectangle of the entry, without any arithmetic
  uint64_t pixel_bytes_ = 0;
};

/// Returns a view of a picture whose pixels `bytes` lie uncompressed in a record (decode_raw).
pictures::PixelView<uint8_t> view_of(const StoredPixels& stored, std::span<const std::byte> bytes);

/// Returns the step of making these rows whose result a cache can keep. Returns nullopt if the pipeline has no cache of
/// pictures, or if the rows are not pictures.
std::optional<KeptStep> kept_step(const RowSpec& rows);

}  // namespace feedline::flow
