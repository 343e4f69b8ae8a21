// Makes rows by looking them up in a table.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "flowgraph/rows/row_writer.h"
#include "flowgraph/table/table.h"
#include "unpack/unpack.h"

namespace feedline::flow {

/// Finds the rows of a table that values stand for.
struct RowFinder {
  std::shared_ptr<const Table> table;
  TableKey key;

  using Values = std::span<const std::span<const std::byte>>;
  /// Sets rows[i] to the number of the row that values[i] stands for, or to -1 if it stands for no row. Precondition:
  /// there are at most Table::most_at_once values.
  void find(Values values, std::span<int64_t> rows) const noexcept;
  /// Does the same, and adds a failure for each value that stands for no row. values[0] belongs to row `first` of the
  /// block.
  void find(Values values, std::span<int64_t> rows, size_t first, RowOutcome& outcome) const;

 private:
  void find_names(Values names, std::span<int64_t> rows) const noexcept;
  RowError failure(size_t row, std::span<const std::byte> value) const;
};

/// Makes each row of the output from a row of the table, which is normalised and cast. If a value stands for no row of
/// the table, the row of the output fails with Category::wrong_value.
class LookupWriter final : public RowWriter {
 public:
  /// `unpack` makes a row of the output from a row of the table. The table must be open.
  LookupWriter(RowFinder finder, const unpack::UnpackSpec& unpack);

  uint64_t scratch_bytes() const noexcept override;
  bool reads_ahead() const noexcept override { return table_.reads_ahead(); }
  void read_ahead(std::span<const std::span<const std::byte>> values) const noexcept override;
  /// Throws Error io_error if the table cannot be read any more. No row fails because of that, because the records are
  /// not the cause.
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;

 private:
  size_t rows_at_once() const noexcept;

  const RowFinder finder_;
  const Table& table_;
  const unpack::Unpacker unpack_;
};

/// Makes rows of one number each: the Table::arrival_number() of the table's row from which LookupWriter would make a
/// row.
class LookupNumberWriter final : public RowWriter {
 public:
  explicit LookupNumberWriter(RowFinder finder) : finder_(std::move(finder)) {}

  uint64_t scratch_bytes() const noexcept override { return 0; }
  void write(std::span<const std::span<const std::byte>> values, const RowNumbers& rows, std::byte* out, size_t stride,
             std::span<std::byte> scratch, RowOutcome& outcome) const override;

 private:
  const RowFinder finder_;
};

}  // namespace feedline::flow
