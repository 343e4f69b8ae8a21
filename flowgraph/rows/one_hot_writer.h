// Makes one-hot vectors from class numbers.
#pragma once

#include <cstddef>
#include <vector>

#include "flowgraph/rows/row_writer.h"
#include "unpack/unpack_spec.h"

namespace feedline::flow {

/// A row is 1 at the class's number and 0 elsewhere, normalised and cast. If a value is not the number of a class, the
/// row fails with Category::wrong_value.
class OneHotWriter final : public RowWriter {
 public:
  /// `unpack` makes a row from one byte for each class.
  explicit OneHotWriter(const unpack::UnpackSpec& unpack);

  uint64_t scratch_bytes() const noexcept override { return 0; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;

 private:
  const int64_t classes_;
  const size_t element_;               // bytes
  std::vector<std::byte> cold_, hot_;  // a row made of only zeros, and a row made of only ones
};

}  // namespace feedline::flow
