// Makes numbers of values by a hash.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flowgraph/rows/row_writer.h"
#include "unpack/unpack.h"

namespace feedline::flow {

/// Makes rows of one number each: the remainder of a value's fingerprint() divided by HashRows::buckets, cast. No row
/// fails.
class HashWriter final : public RowWriter {
 public:
  explicit HashWriter(const HashRows& rows)
      : buckets_(rows.buckets), of_numbers_(rows.of_numbers), unpack_(rows.unpack) {}

  uint64_t scratch_bytes() const noexcept override { return 0; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;

 private:
  const uint64_t buckets_;
  const bool of_numbers_;
  const unpack::Unpacker unpack_;
};

}  // namespace feedline::flow
