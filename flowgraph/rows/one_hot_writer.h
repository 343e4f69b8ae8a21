// Makes one-hot and multi-hot vectors from class numbers.
#pragma once

#include <cstddef>
#include <vector>

#include "flowgraph/rows/row_writer.h"

namespace feedline::flow {

/// A row is OneHotRows::on at the numbers of classes and OneHotRows::off elsewhere, normalised and cast. A value is any
/// number of INT64 numbers. If one of them is not the number of a class, the row fails with Category::wrong_value,
/// unless OneHotRows::ignores_outside.
class OneHotWriter final : public RowWriter {
 public:
  explicit OneHotWriter(const OneHotRows& rows);

  uint64_t scratch_bytes() const noexcept override { return 0; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;

 private:
  const int64_t classes_;
  const bool ignores_outside_;
  const size_t element_;               // bytes
  std::vector<std::byte> cold_, hot_;  // a row that is only `off`, and a row that is only `on`
};

}  // namespace feedline::flow
