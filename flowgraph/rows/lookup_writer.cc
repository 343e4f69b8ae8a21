#include "flowgraph/rows/lookup_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "base/load.h"
#include "flowgraph/rows/decimal_text.h"
#include "flowgraph/rows/fingerprint.h"

namespace feedline::flow {
namespace {

// The number of bytes of rows that are read at a time: so few that they stay in the second-level cache until they are
// unpacked.
constexpr size_t bytes_at_once = 256 << 10;

using By = TableKey::By;

}  // namespace

void RowFinder::find(Values values, std::span<int64_t> rows) const noexcept {
  switch (key.by) {
    case By::row:
      for (size_t i = 0; i < values.size(); i++) {
        const int64_t number = load<int64_t>(values[i].data());
        rows[i] = number >= 0 && static_cast<uint64_t>(number) < table->rows() ? number : -1;
      }
      break;
    case By::name:
      find_names(values, rows);
      break;
    case By::number_name: {
      std::array<DecimalText, Table::most_at_once> texts;
      std::array<KeyMap::Key, Table::most_at_once> names;
      for (size_t i = 0; i < values.size(); i++) {
        texts[i] = DecimalText(values[i]);
        names[i] = std::as_bytes(std::span(texts[i].view()));
      }
      find_names(std::span(names).first(values.size()), rows);
      break;
    }
  }
  if (key.unknown) std::ranges::replace(rows.first(values.size()), -1, *key.unknown);
}

void RowFinder::find_names(Values names, std::span<int64_t> rows) const noexcept {
  table->keys().find(names, rows);
  if (key.unknown_buckets == 0) return;
  for (size_t i = 0; i < names.size(); i++)
    if (rows[i] < 0)
      rows[i] = static_cast<int64_t>(table->rows() +
                                     fingerprint({reinterpret_cast<const char*>(names[i].data()), names[i].size()}) %
                                         key.unknown_buckets);
}

void RowFinder::find(Values values, std::span<int64_t> rows, size_t first, RowOutcome& outcome) const {
  find(values, rows);
  if (key.unknown || key.unknown_buckets > 0) return;
  for (size_t i = 0; i < values.size(); i++)
    if (rows[i] < 0) outcome.failed.push_back(failure(first + i, values[i]));
}

RowError RowFinder::failure(size_t row, std::span<const std::byte> value) const {
  const TableSpec& spec = table->spec();
  std::string message;
  if (key.by == By::row)
    message = fmt::format(
        "there is no row {} in {}, which has rows 0 to {}; give lookup.unknown, or correct the record or the table",
        load<int64_t>(value.data()), spec.name(), table->rows() - 1);
  else
    message = fmt::format(
        "{0} does not have the {1}; add the {2} to this file{3}, give {4}.unknown, or correct the record",
        std::filesystem::path(spec.keys_path).filename().string(),
        key.by == By::name ? "name " + quoted(value) : "number " + std::string(DecimalText(value).view()),
        key.by == By::name ? "name" : "number", spec.is_vocabulary() ? std::string() : " and its row to " + spec.name(),
        spec.is_vocabulary() ? "vocabulary" : "lookup");
  return {static_cast<uint32_t>(row), Category::wrong_value, -1, std::move(message)};
}

LookupWriter::LookupWriter(RowFinder finder, const unpack::UnpackSpec& unpack)
    : finder_(std::move(finder)), table_(*finder_.table), unpack_(unpack) {}

size_t LookupWriter::rows_at_once() const noexcept {
  return std::clamp<size_t>(bytes_at_once / table_.row_bytes(), 1, Table::most_at_once);
}

uint64_t LookupWriter::scratch_bytes() const noexcept {
  const uint64_t bytes = rows_at_once() * table_.scratch_bytes();
  return bytes == 0 ? 0 : bytes + Table::scratch_alignment;  // to align it
}

void LookupWriter::read_ahead(std::span<const std::span<const std::byte>> values) const noexcept {
  std::array<int64_t, Table::most_at_once> rows;
  int64_t before = -1;
  for (; !values.empty(); values = values.subspan(std::min(values.size(), Table::most_at_once))) {
    const size_t count = std::min(values.size(), Table::most_at_once);
    finder_.find(values.first(count), rows);
    for (const int64_t row : std::span(rows).first(count))
      if (row >= 0 && row != std::exchange(before, row)) table_.read_ahead(static_cast<uint64_t>(row));
  }
}

void LookupWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers&, std::byte* out,
                         size_t stride, std::span<std::byte> scratch, RowOutcome& outcome) const {
  std::array<int64_t, Table::most_at_once> rows;
  std::array<const std::byte*, Table::most_at_once> stored;
  const size_t unaligned = reinterpret_cast<uintptr_t>(scratch.data()) % Table::scratch_alignment;
  if (unaligned > 0) scratch = scratch.subspan(Table::scratch_alignment - unaligned);
  const size_t at_once = rows_at_once();
  for (size_t first = 0; first < values.size(); first += at_once, out += at_once * stride) {
    const std::span some = values.subspan(first, std::min(at_once, values.size() - first));
    finder_.find(some, rows, first, outcome);
    table_.read(std::span(rows).first(some.size()), scratch, stored);
    unpack_(std::span(stored).first(some.size()), out, stride);
  }
}

void LookupNumberWriter::write(std::span<const std::span<const std::byte>> values, const RowNumbers&, std::byte* out,
                               size_t stride, std::span<std::byte>, RowOutcome& outcome) const {
  std::array<int64_t, Table::most_at_once> rows;
  for (size_t first = 0; first < values.size(); first += rows.size()) {
    const std::span some = values.subspan(first, std::min(rows.size(), values.size() - first));
    finder_.find(some, rows, first, outcome);
    for (size_t i = 0; i < some.size(); i++, out += stride) {
      const int64_t number = Table::arrival_number(rows[i]);
      std::memcpy(out, &number, sizeof number);
    }
  }
}

}  // namespace feedline::flow
