// Makes numbers of names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "flowgraph/rows/lookup_writer.h"
#include "flowgraph/rows/row_writer.h"
#include "flowgraph/table/table.h"
#include "unpack/unpack.h"

namespace feedline::flow {

/// Makes rows of one number each: the number of a name in a vocabulary, cast. If the vocabulary does not have the name,
/// the row is `unknown`, or it fails with Category::wrong_value if there is no `unknown`.
class VocabularyWriter final : public RowWriter {
 public:
  /// `unpack` makes a row from a number, an INT64. The vocabulary must be open.
  VocabularyWriter(std::shared_ptr<const Table> vocabulary, std::optional<int64_t> unknown,
                   const unpack::UnpackSpec& unpack);

  uint64_t scratch_bytes() const noexcept override { return 0; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;

 private:
  const RowFinder finder_;
  const std::optional<int64_t> unknown_;
  const unpack::Unpacker unpack_;
};

}  // namespace feedline::flow
