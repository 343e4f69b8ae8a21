// Makes rows from encoded pictures.
#pragma once

#include "flowgraph/pipeline/row_writer.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace feedline::flow {

/// A row is a picture: decoded, cropped, resized, normalised and cast. A picture that cannot be decoded, or is smaller
/// than its crop, is a failed row of Category::bad_image.
class PictureWriter final : public RowWriter {
 public:
  /// `geometry` must have a size that does not depend on the picture.
  PictureWriter(const pictures::DecodeOptions& decode, const pictures::GeometrySpec& geometry, pictures::Finish finish);

  uint64_t scratch_bytes() const noexcept override;
  void write(std::span<const std::span<const std::byte>> values, std::byte* out, size_t stride,
             std::span<std::byte> scratch, std::vector<RowFailure>& failed) const override;

 private:
  const pictures::DecodeOptions decode_;
  const pictures::GeometrySpec geometry_;
  const pictures::Finish finish_;
};

}  // namespace feedline::flow
