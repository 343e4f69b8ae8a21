// Makes numbers of names.
#pragma once

#include <cstddef>
#include <span>

#include "flowgraph/rows/lookup_writer.h"
#include "flowgraph/rows/row_writer.h"
#include "unpack/unpack.h"

namespace feedline::flow {

/// Makes rows of one number each: the number of a name in a vocabulary, cast. If a value has no number, the row fails
/// with Category::wrong_value.
class VocabularyWriter final : public RowWriter {
 public:
  /// `unpack` makes a row from a number, an INT64. The vocabulary must be open. Throws Error bad_pipeline if
  /// TableKey::unknown_buckets makes numbers that do not fit into INT32, if rows are INT32.
  VocabularyWriter(RowFinder finder, const unpack::UnpackSpec& unpack);

  uint64_t scratch_bytes() const noexcept override { return 0; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;

 private:
  const RowFinder finder_;
  const unpack::Unpacker unpack_;
};

}  // namespace feedline::flow
