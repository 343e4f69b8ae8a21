// Makes rows from pictures, which are encoded or lie as pixels in the records.
#pragma once

#include <optional>

#include "flowgraph/rows/kept_picture.h"
#include "flowgraph/rows/row_writer.h"
#include "pictures/shape/geometry.h"

namespace feedline::flow {

/// If a picture cannot be decoded, or is smaller than its crop, the row fails with Category::bad_image.
class PictureWriter final : public RowWriter {
 public:
  explicit PictureWriter(PictureRows rows);

  uint64_t scratch_bytes() const noexcept override;
  uint64_t heap_bytes() const noexcept override;
  bool takes_long() const noexcept override { return true; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;
  uint64_t kept_bytes(std::span<const std::byte> value) const override;

 private:
  bool write_kept(std::span<const std::byte> value, const KeptRows& kept, uint64_t entry,
                  const pictures::Choices& choices, std::span<std::byte> out, std::span<std::byte> scratch,
                  RowOutcome& outcome) const;
  std::span<const std::byte> make_entry(std::span<const std::byte> value, io::EntryStore& store, uint64_t entry,
                                        std::span<std::byte> place, std::span<std::byte> scratch) const;

  const PictureRows rows_;
  const uint64_t crop_key_, flip_key_;
  std::optional<const KeptPicture> kept_;  // nullopt: no cache keeps pictures
};

}  // namespace feedline::flow
