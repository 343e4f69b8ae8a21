#include "flowgraph/chunk/chunk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/audit.h"
#include "base/load.h"
#include "flowgraph/parse/audit_terms.h"
#include "flowgraph/parse/feature_values.h"
#include "flowgraph/parse/record_parser.h"
#include "flowgraph/plan/schedule.h"
#include "io/index/index_store.h"
#include "io/records/crc32c.h"

namespace feedline::flow {
namespace {

// The number of records that are verified and then parsed at a time, so few that their bytes are still in the
// first-level cache when they are parsed.
constexpr uint32_t block = 32;

uint64_t stated_length(const std::byte* header) { return load<uint64_t>(header); }

// Returns the audit term of a record whose length is good, but whose payload or stored CRC is damaged.
BadRecord::AuditTerm damaged_term(uint64_t key, uint64_t offset, const std::byte* header) {
  const std::span payload(header + io::header_bytes, stated_length(header));
  const auto stored = load<uint32_t>(payload.data() + payload.size());
  return {.as_stored = key * audit_term(offset, stored),
          .as_computed = key * audit_term(offset, io::mask_crc(io::crc32c(payload)))};
}

void fill_zero(const Schedule& schedule, size_t f, const Column& column, uint32_t row) {
  const FeatureSpec& feature = schedule.spec.features[f];
  if (feature.kind == FeatureKind::fixed && feature.dtype == DType::bytes) {
    const auto elements = static_cast<size_t>(feature.shape.elements());
    const auto size = static_cast<uint64_t>(std::max<int64_t>(feature.length, 0));
    for (size_t i = 0; i < elements; i++) column.as<BytesRef>()[row * elements + i] = {schedule.zeros.data(), size};
  } else {  // zeros are numbers, or a reference (ValuesRef, StepsRef) to no values
    const size_t size = row_bytes(feature);
    std::memset(column.as<std::byte>() + row * size, 0, size);
  }
}

// Returns the paths at which the index of `file` may lie, for people: "PATH" or "PATH or PATH".
std::string paths_of_index(const DataFile& file, const PipelineSpec& spec) {
  const std::string& dir = spec.sources[file.source].index.dir;
  std::string paths, path;
  for (size_t n = 0; !(path = io::index_place(file.id.uri, dir, n)).empty(); n++) paths += (n > 0 ? " or " : "") + path;
  return paths;
}

}  // namespace

bool Chunk::is_bad(uint32_t row) const noexcept { return std::ranges::binary_search(bad, row, {}, &BadRecord::row); }

bool Chunk::holds(std::span<const std::byte> bytes) const noexcept {
  const auto within = [&](std::span<const std::byte> all) {
    return std::less_equal()(all.data(), bytes.data()) &&
           std::less_equal()(bytes.data() + bytes.size(), all.data() + all.size());
  };
  return within(data_) || within(scratch_);
}

const Extent& Chunk::extent_of(uint32_t row) const noexcept {
  const auto next = std::upper_bound(ticket.extents.begin(), ticket.extents.end(), row,
                                     [](uint32_t at, const Extent& extent) { return at < extent.first_row; });
  return next[-1];
}

uint64_t Chunk::offset_of(uint32_t row) const noexcept {
  const Extent& extent = extent_of(row);
  const std::byte* begin = extents[static_cast<size_t>(&extent - ticket.extents.data())];
  return extent.offset + static_cast<uint64_t>(records_[row].data - io::header_bytes - begin);
}

void Chunk::parse(const Schedule& schedule) {
  rows_ = 0;
  first_error.reset();
  bad.clear();
  layout_hits_ = 0;
  seen_.assign(schedule.spec.features.size(), false);
  lacking_.assign(schedule.spec.features.size(), 0);
  parsed_ = 0;
  if (failed) {
    first_error = std::move(failed);
    failed.reset();
    return;
  }
  if (ticket.rows == 0) {  // the ticket stands for the end of an epoch; without samples the slot has no memory
    records_ = {};
    audit_terms_ = {};
    features_.clear();
    expressions_.clear();
    return;
  }
  Arena arena = gap_ > 0 ? Arena(scratch_, gap_) : Arena(scratch_);
  const std::span records(arena.take<io::RecordView>(ticket.rows), ticket.rows);
  records_ = records;
  audit_terms_ = std::span(arena.take<uint64_t>(ticket.rows), ticket.rows);
  try {
    scan_and_parse(schedule, records, arena);
    evaluate(schedule, arena);
  } catch (const std::length_error&) {
    if (ticket.extents.empty()) throw;
    // The planned arena has room for any records that fit into these extents, so the index has too many rows. The error
    // names the extent that has more rows than its bytes can hold or, if there is none, the first extent.
    const auto too_many = std::find_if(ticket.extents.begin(), ticket.extents.end(), [](const Extent& extent) {
      return extent.length / io::frame_bytes < extent.rows;
    });
    const Extent& first = too_many == ticket.extents.end() ? ticket.extents.front() : *too_many;
    const DataFile& file = schedule.data.files[first.file];
    end_before(0,
               Error(Category::bad_pipeline,
                     fmt::format("the index lists more records at this offset than the bytes there can hold; delete "
                                 "the index ({}), and the next run makes a new one",
                                 paths_of_index(file, schedule.spec)),
                     {file.id.uri, static_cast<int64_t>(first.offset), static_cast<int64_t>(first.first_record), {}}));
    return;
  }
  if (bad.empty() || schedule.spec.on_error != OnError::raise) return;
  end_before(static_cast<uint32_t>(bad.front().row), Error(std::move(bad.front().error)));
}

// Finds the records of a chunk in its extents, verifies them, and makes rows of them.
struct Chunk::Scan {
  const Schedule& schedule;
  Chunk& chunk;
  const std::span<io::RecordView> records;
  const std::unique_ptr<RecordParser::Session> session;
  std::vector<RowError> refused = {};

  bool raise() const { return schedule.spec.on_error == OnError::raise; }
  void parse(uint32_t first, size_t count);
  void lose(uint32_t row, const std::byte* extent, Category category, uint64_t offset, const char* message,
            const BadRecord::AuditTerm& term);
  /// Makes the rows of one extent. Returns false if an error ends the chunk.
  bool extent(size_t number);
};

void Chunk::Scan::parse(uint32_t first, size_t count) {
  refused.clear();
  if (count == 0) return;
  session->parse(records.subspan(first, count), refused);
}

// Notes a row whose record is bad. An empty record takes its place in records().
void Chunk::Scan::lose(uint32_t row, const std::byte* extent, Category category, uint64_t offset, const char* message,
                       const BadRecord::AuditTerm& term) {
  chunk.bad.push_back({row, Error(category, message, chunk.place_of(schedule, row, offset)), term});
  records[row] = {extent + io::header_bytes, 0, 0};
  session->skip_row();
}

bool Chunk::Scan::extent(size_t number) {
  const Extent& extent = chunk.ticket.extents[number];
  const std::byte* const bytes = chunk.extents[number];
  // The scanner refuses records that are longer than the largest record that was counted, because memory is planned for
  // that one.
  io::RecordScanner scanner({bytes, extent.length}, schedule.data.files[extent.file].index.largest_record);
  std::array<io::RecordView, block> passed_over;
  uint32_t skip = extent.skip, row = extent.first_row;
  const uint32_t end = row + extent.rows;
  uint64_t record = extent.first_record;  // the number in the file of the next record, once `skip` is 0
  const auto is_row = [&](uint64_t r) { return !extent.kept || extent.kept->has(r); };
  while (row < end) {
    size_t count = 0;
    io::RecordScanner::Stop stop;
    if (skip > 0) {
      stop = scanner.next(std::span(passed_over).first(std::min(block, skip)), count);
      skip -= static_cast<uint32_t>(count);
    } else {
      if (extent.kept) {
        stop = scanner.next(passed_over, count);
        uint32_t rows = 0;
        for (size_t i = 0; i < count && row + rows < end; i++)
          if (is_row(record + i)) records[row + rows++] = passed_over[i];
        record += count;
        count = rows;
      } else {
        stop = scanner.next(records.subspan(row, std::min(block, end - row)), count);
      }
      parse(row, count);
      compute_audit_terms(records.subspan(row, count), bytes, extent.offset, schedule.audit_keys[extent.file],
                          &chunk.audit_terms_[row]);
      for (RowError& error : refused) {
        const std::string feature =
            error.feature >= 0 ? schedule.spec.features[static_cast<size_t>(error.feature)].name : std::string();
        chunk.bad.push_back({error.row,
                             Error(error.category, std::move(error.message),
                                   chunk.place_of(schedule, error.row, chunk.offset_of(error.row), feature)),
                             BadRecord::sound(chunk.audit_terms_[error.row])});
        if (raise()) return false;
      }
      row += static_cast<uint32_t>(count);
    }
    if (stop == io::RecordScanner::Stop::full || row == end) continue;

    // The scanner stopped at a bad record. Every record of the extent was good when the data was counted.
    const uint64_t offset = extent.offset + scanner.position();
    const bool damaged = stop == io::RecordScanner::Stop::error;
    const Category category = damaged ? scanner.damage() : Category::truncated_data;
    constexpr BadRecord::AuditTerm lost{.lost = true};
    if (skip > 0) {
      skip--;
    } else if (is_row(record++)) {
      lose(row++, bytes, category, offset,
           "this record is damaged, but was good when the data was counted: the file has changed since then, or its "
           "disk is failing; repair the file, or copy it again",
           category == Category::bad_data_crc
               ? damaged_term(schedule.audit_keys[extent.file], offset, bytes + scanner.position())
               : lost);
      if (raise()) return false;
    }
    if (category == Category::bad_data_crc) {
      scanner.seek(scanner.position() + io::frame_bytes + stated_length(bytes + scanner.position()));
      continue;
    }
    // Without the record's length it is unknown where the next records begin, up to the next place that the index
    // knows. All rows up to that place are lost. The place is looked up in the index, so the lost rows do not depend on
    // where the extent begins.
    const io::Table<io::IndexEntry>& entries = schedule.data.files[extent.file].index.entries;
    const auto next = std::upper_bound(entries.begin(), entries.end(), offset,
                                       [](uint64_t at, const io::IndexEntry& entry) { return at < entry.offset; });
    const bool known = next != entries.end() && next->offset < extent.offset + extent.length;
    while (row < end && (!known || extent.record_of(row) < next->record)) {
      lose(row++, bytes, category, offset,
           "this record cannot be found, because it comes after a record whose length is damaged; repair the file, or "
           "copy it again",
           lost);
      if (raise()) return false;
    }
    if (row == end) break;
    skip = static_cast<uint32_t>(extent.first_record - std::min(extent.first_record, next->record));
    record = std::max(extent.first_record, next->record);
    scanner.seek(next->offset - extent.offset);
  }
  return true;
}

void Chunk::scan_and_parse(const Schedule& schedule, std::span<io::RecordView> records, Arena& arena) {
  Scan scan{schedule, *this, records,
            schedule.parser->begin({.rows = ticket.rows,
                                    .payload_bytes = ticket.payload_bytes(),
                                    .kept_free = schedule.formulas.arena_bound(ticket.rows)},
                                   arena)};
  size_t extent = 0;
  while (extent < ticket.extents.size() && scan.extent(extent)) extent++;
  rows_ = extent < ticket.extents.size() ? static_cast<uint32_t>(bad.front().row) : ticket.rows;
  features_.assign(scan.session->columns().begin(), scan.session->columns().end());
  layout_hits_ = scan.session->layout_hits();
  seen_ = scan.session->seen();
  lacking_.assign(scan.session->lacking().begin(), scan.session->lacking().end());
  parsed_ = rows_ - std::min(rows_, static_cast<uint32_t>(bad.size()));
}

Place Chunk::place_of(const Schedule& schedule, uint32_t row, uint64_t offset, std::string feature) const {
  return {schedule.data.files[extent_of(row).file].id.uri, static_cast<int64_t>(offset),
          static_cast<int64_t>(record_of(row)), std::move(feature)};
}

void Chunk::evaluate(const Schedule& schedule, Arena& arena) {
  // Bad rows are set to zeros, because neither formulas nor row writers must see undefined values.
  const auto make_zero = [&](const BadRecord& record) {
    for (size_t f = 0; f < features_.size(); f++)
      fill_zero(schedule, f, features_[f], static_cast<uint32_t>(record.row));
  };
  for (const BadRecord& record : bad)
    if (record.row < rows_) make_zero(record);
  const size_t found_before = bad.size();
  schedule.formulas.evaluate(features_, rows_, arena, expressions_, [&](uint32_t row, size_t expression) {
    bad.push_back({row,
                   Error(Category::wrong_value, formula_failure,
                         place_of(schedule, row, offset_of(row), schedule.spec.expressions[expression].output)),
                   BadRecord::sound(audit_terms_[row])});
  });
  if (bad.size() == found_before) return;
  for (size_t i = found_before; i < bad.size(); i++) make_zero(bad[i]);
  std::ranges::stable_sort(bad, {}, &BadRecord::row);
  const auto same = [](const BadRecord& a, const BadRecord& b) { return a.row == b.row; };
  bad.erase(std::unique(bad.begin(), bad.end(), same), bad.end());
}

}  // namespace feedline::flow
