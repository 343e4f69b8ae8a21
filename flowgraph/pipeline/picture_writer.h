// Makes rows from encoded pictures.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "flowgraph/pipeline/row_writer.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace feedline::flow {

/// What the random choices for a picture depend on, besides the epoch and the picture's number within the epoch.
struct ChoiceKeys {
  uint64_t seed = 0;
  std::string crop_group, flip_group;  // outputs of one group share a choice
};

/// Pixels of UINT8 that lie in a feature's bytes, as decode_raw says.
struct StoredPixels {
  int64_t height = 0, width = 0;
  int channels = 0;
  bool channels_first = false;
};

/// A row is a picture: decoded, cropped, resized, mirrored, normalised and cast. A picture that cannot be decoded, or is
/// smaller than its crop, is a failed row of Category::bad_image.
class PictureWriter final : public RowWriter {
 public:
  /// What a picture is made from: an encoded one, or pixels.
  using Origin = std::variant<pictures::DecodeOptions, StoredPixels>;

  /// `geometry` must have a size that does not depend on the picture.
  PictureWriter(Origin origin, const pictures::GeometrySpec& geometry, pictures::Finish finish, const ChoiceKeys& keys);

  uint64_t scratch_bytes() const noexcept override;
  uint64_t heap_bytes() const noexcept override;
  bool takes_long() const noexcept override { return true; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;
  std::shared_ptr<const RowWriter> of_stored_numbers() const override;

 private:
  const Origin origin_;
  const pictures::GeometrySpec geometry_;
  const pictures::Finish finish_;
  const ChoiceKeys keys_;
  const uint64_t crop_key_, flip_key_;
};

}  // namespace feedline::flow
