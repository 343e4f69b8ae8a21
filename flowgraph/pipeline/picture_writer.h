// Makes rows from encoded pictures.
#pragma once

#include <string>

#include "flowgraph/pipeline/row_writer.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace feedline::flow {

/// What the random choices of a picture depend on, besides its epoch and its number in it.
struct ChoiceKeys {
  uint64_t seed = 0;
  std::string crop_group, flip_group;  // outputs of one group share a choice
};

/// A row is a picture: decoded, cropped, resized, mirrored, normalised and cast. A picture that cannot be decoded, or is smaller
/// than its crop, is a failed row of Category::bad_image.
class PictureWriter final : public RowWriter {
 public:
  /// `geometry` must have a size that does not depend on the picture.
  PictureWriter(const pictures::DecodeOptions& decode, const pictures::GeometrySpec& geometry, pictures::Finish finish,
                const ChoiceKeys& keys);

  uint64_t scratch_bytes() const noexcept override;
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, std::vector<RowFailure>& failed) const override;

 private:
  const pictures::DecodeOptions decode_;
  const pictures::GeometrySpec geometry_;
  const pictures::Finish finish_;
  const uint64_t crop_key_, flip_key_;
};

}  // namespace feedline::flow
