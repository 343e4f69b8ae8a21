// Makes rows from pictures, which are encoded or lie as pixels in the records.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "flowgraph/rows/cache_spec.h"
#include "flowgraph/rows/kept_picture.h"
#include "flowgraph/rows/row_writer.h"
#include "pictures/shape/geometry.h"
#include "pictures/shape/render.h"

namespace feedline::flow {

/// What the random choices for a picture depend on, besides the epoch and the picture's number within the epoch.
struct ChoiceKeys {
  uint64_t seed = 0;
  std::string crop_group, flip_group;  // outputs of one group share a choice
};

/// A row is a picture: decoded, cropped, resized, mirrored, normalised and cast. If a picture cannot be decoded, or is
/// smaller than its crop, the row fails with Category::bad_image.
class PictureWriter final : public RowWriter {
 public:
  /// `geometry` must have a size that does not depend on the picture. `cache` says what of the pictures is kept.
  PictureWriter(PictureOrigin origin, const pictures::GeometrySpec& geometry, pictures::Finish finish,
                const ChoiceKeys& keys, const std::optional<CacheSpec>& cache);

  uint64_t scratch_bytes() const noexcept override;
  uint64_t heap_bytes() const noexcept override;
  bool takes_long() const noexcept override { return true; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;
  std::shared_ptr<const RowWriter> of_stored_numbers() const override;
  const KeptStep* kept_step() const noexcept override { return kept_ ? &kept_->step() : nullptr; }
  uint64_t kept_bytes(std::span<const std::byte> value) const override;

 private:
  bool write_kept(std::span<const std::byte> value, const KeptRows& kept, uint64_t entry,
                  const pictures::Choices& choices, std::span<std::byte> out, std::span<std::byte> scratch,
                  RowOutcome& outcome) const;
  std::span<const std::byte> make_entry(std::span<const std::byte> value, io::EntryStore& store, uint64_t entry,
                                        std::span<std::byte> place, std::span<std::byte> scratch) const;

  const PictureOrigin origin_;
  const pictures::GeometrySpec geometry_;
  const pictures::Finish finish_;
  const ChoiceKeys keys_;
  const uint64_t crop_key_, flip_key_;
  const std::optional<CacheSpec> cache_;
  std::optional<const KeptPicture> kept_;  // nullopt: no cache keeps pictures
};

}  // namespace feedline::flow
