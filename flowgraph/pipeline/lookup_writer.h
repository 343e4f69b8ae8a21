// Makes rows by looking them up in a table.
#pragma once

#include <cstddef>
#include <memory>

#include "flowgraph/pipeline/row_writer.h"
#include "flowgraph/table/table.h"
#include "gpu/unpack/unpack.h"

namespace feedline::flow {

/// A row is a row of the table, normalised and cast. Its value is the row's number, an INT64, or the row's name. A
/// number or a name that the table does not have is a failed row of Category::wrong_value.
class LookupWriter final : public RowWriter {
 public:
  /// `unpack` makes a row from one of the table. The table may be opened later, before write().
  LookupWriter(std::shared_ptr<const Table> table, bool by_name, const gpu::UnpackSpec& unpack);

  uint64_t scratch_bytes() const noexcept override;
  bool reads_ahead() const noexcept override { return table_->reads_ahead(); }
  void read_ahead(std::span<const std::span<const std::byte>> values) const noexcept override;
  std::optional<RowFailure> refusal(std::span<const std::byte> value) const override;
  /// Throws Error io_error if the table cannot be read any more: that says nothing about the records.
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;
  std::shared_ptr<const RowWriter> of_stored_numbers() const override;

 private:
  size_t rows_at_once() const noexcept;
  void find(std::span<const std::span<const std::byte>> values, std::span<int64_t> rows) const noexcept;
  std::string message_of(std::span<const std::byte> value) const;

  const std::shared_ptr<const Table> table_;
  const bool by_name_;
  const gpu::Unpacker unpack_;
};

}  // namespace feedline::flow
