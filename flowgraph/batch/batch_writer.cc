#include "flowgraph/batch/batch_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "base/audit.h"
#include "base/invariant.h"
#include "base/machine.h"
#include "base/mutex.h"
#include "base/syscall_hooks.h"
#include "flowgraph/batch/batch_rows.h"
#include "flowgraph/batch/packing.h"
#include "flowgraph/batch/ragged_writer.h"
#include "flowgraph/parse/formula_columns.h"

namespace feedline::flow {

// Rows that are written together; there is at least one.
struct RowBlock {
  int64_t first;  // the number of the first row in the batch
  std::span<BatchRow> rows;
  // The result of in_sequence(). It is false for the rows of a shuffle, because they are scattered over chunks.
  bool in_sequence;
};

// The rows of a batch that could not be written, and those of bad records.
struct BatchWriter::Failures {
  explicit Failures(const BatchRows& of) : batch(of) {}
  struct Found {
    std::vector<int64_t> rows;       // their numbers in the batch; a row comes once for each output that failed
    std::vector<BadRecord> records;  // the records of those rows that were not filler before
  };
  const BatchRows& batch;
  Mutex mutex;
  Found found FEEDLINE_GUARDED_BY(mutex);

  // Notes a row of the block that could not be written, and makes it filler.
  void add(RowBlock& block, RowError&& failure, const std::string& feature, const Plan& plan) {
    BatchRow& row = block.rows[failure.row];
    block.in_sequence = false;
    const Lock lock(mutex);
    const int64_t number = block.first + static_cast<int64_t>(failure.row);
    found.rows.push_back(number);
    if (std::exchange(row.filler, true)) return;
    found.records.push_back(
        {batch.wanted.first + number,
         Error(failure.category, std::move(failure.message), row.chunk->place_of(plan, row.row, feature)),
         BadRecord::sound(row.chunk->audit_terms()[row.row])});
  }

  // Notes the rows of the block whose records are bad.
  void add_bad(const RowBlock& block) {
    const Lock lock(mutex);
    for (size_t i = 0; i < block.rows.size(); i++)
      if (block.rows[i].bad) found.rows.push_back(block.first + static_cast<int64_t>(i));
  }

  Found take() {
    const Lock lock(mutex);
    return std::move(found);
  }
};

namespace {

// A buffer that was not written for this long has left the last-level cache, if other programs share the cache. Then
// streaming (non-temporal) stores take half the time of normal stores. For a buffer in the cache they take longer.
constexpr std::chrono::milliseconds leaves_caches_after{5};

// Faults that the audit must find. Tests inject them by the hooks that otherwise inject failures of system calls.
using LeaveOutRecordOp = HookedCall<"record left out of a batch", EPROTO>;
using DoubleRecordOp = HookedCall<"record doubled in a batch", EPROTO>;

// Injects the faults above. Returns whether rows may have changed. Called once for each block of rows, before the
// tensors are written, because records can no longer be told apart in tensors.
bool act_out_faults(std::span<BatchRow> rows) {
  const bool leaves_out = syscall_hook<LeaveOutRecordOp>.pending(), doubles = syscall_hook<DoubleRecordOp>.pending();
  if (leaves_out)
    for (BatchRow& row : rows) row.filler = row.filler || injected<LeaveOutRecordOp>() != 0;
  if (doubles)
    for (size_t i = 1; i < rows.size(); i++)
      if (injected<DoubleRecordOp>()) rows[i] = rows[i - 1];
  return leaves_out || doubles;
}

int64_t value_of(const FeatureSpec& feature, const Column& column, uint32_t row) {
  if (feature.dtype == DType::int64) return column.as<int64_t>()[row];
  const BytesRef& bytes = column.as<BytesRef>()[row];
  return static_cast<int64_t>(hash64({reinterpret_cast<const char*>(bytes.data), bytes.size}));
}

int64_t reserved_value(const Plan& plan, const ColumnRef& column, const Chunk& chunk, uint32_t row) {
  switch (column.what) {
    case Reserved::record:
      return static_cast<int64_t>(plan.data.files[chunk.extent_of(row).file].first_record + chunk.record_of(row));
    case Reserved::file:
      return chunk.extent_of(row).file;
    case Reserved::offset:
      return static_cast<int64_t>(chunk.offset_of(row));
    case Reserved::audit:
      return static_cast<int64_t>(chunk.audit_terms()[row]);
    case Reserved::source:
      return plan.data.files[chunk.extent_of(row).file].source;
    case Reserved::value: {
      const auto feature = static_cast<size_t>(column.number);
      return value_of(plan.spec.features[feature], chunk.features()[feature], row);
    }
  }
  return -1;
}

// Sets at[i] to the address of one element of rows[i]. The elements lie in the column that column_of(chunk) returns.
// Each row has `elements` elements there, and element number `element` of them is located.
template <typename ColumnOf>
void locate(const RowBlock& block, RowAccess access, const ColumnOf& column_of, size_t elements, size_t element,
            const std::byte** at) {
  const std::span rows = block.rows;
  if (block.in_sequence) {
    const Column column = column_of(*rows.front().chunk);
    uint64_t row = rows.front().row * elements + element;
    for (size_t i = 0; i < rows.size(); i++, row += elements) at[i] = access(column, row);
  } else {
    for (size_t i = 0; i < rows.size(); i++)
      at[i] = access(column_of(*rows[i].chunk), rows[i].row * elements + element);
  }
}

// Brings the first bytes of each row into the second-level cache, which has room for more rows at a time than the
// first-level cache. The CPU fetches the rest of a row by itself.
void prefetch_rows(std::span<const std::byte* const> rows, size_t row_bytes) noexcept {
  constexpr uintptr_t line = 64, most = 4 * line;
  for (const std::byte* row : rows) {
    const auto at = reinterpret_cast<uintptr_t>(row), end = at + std::min(row_bytes, most);
    for (uintptr_t l = at & -line; l < end; l += line) __builtin_prefetch(reinterpret_cast<const void*>(l), 0, 2);
  }
}

// Unpacks some rows while the next ones are brought into the cache.
void unpack_scattered(const unpack::Unpacker& unpack, std::span<const std::byte* const> rows, size_t row_bytes,
                      std::byte* out, size_t stride) noexcept {
  constexpr size_t some = 16;
  const auto from = [&](size_t first) { return rows.subspan(first, std::min(some, rows.size() - first)); };
  prefetch_rows(from(0), row_bytes);
  for (size_t first = 0; first < rows.size(); first += some) {
    if (first + some < rows.size()) prefetch_rows(from(first + some), row_bytes);
    unpack(from(first), out + first * stride, stride);
  }
}

/// Writes a row of a dense output as if all columns that it is made from were zeros. The row is unpacked from zeros, as
/// it would be if the batch were sent to another rank or a GPU in packed form. So a batch is the same whether it is
/// sent or not.
void write_row_of_zeros(const OutputSpec& output, const Packing::Output& packed, std::byte* out) {
  const size_t bytes = output.row_bytes();
  std::memset(out, 0, bytes);
  for (const Packing::Job& job : packed.jobs) {
    const unpack::Unpacker unpack(job.unpack);
    const size_t value = static_cast<size_t>(job.unpack.shape.elements()) * size_of(job.unpack.out);
    check_invariant(job.offset + job.values * value <= bytes, "output '{}' has rows of {} bytes, not {}", output.name,
                    bytes, job.offset + job.values * value);
    const std::vector<std::byte> zeros(job.unpack.row_bytes());
    const std::vector<const std::byte*> values(job.values, zeros.data());
    unpack(values, out + job.offset, bytes / job.values);
  }
}

}  // namespace

BatchWriter::BatchWriter(const Plan& plan, CacheStore* rows, bool for_gpus)
    : plan_(plan), store_(rows && !plan.cache->pieces() ? rows->store() : nullptr) {
  const auto threads = static_cast<size_t>(plan.threads);
  if (plan.memory.scratch_bytes > 0) scratch_ = gpu::Memory(threads * plan.memory.scratch_bytes);
  if (store_ && plan.cache->scratch_bytes() > 0) cache_scratch_ = gpu::Memory(threads * plan.cache->scratch_bytes());
  int64_t row_bytes = 1;
  for (const BatchTensor& tensor : plan.memory.tensors) {
    if (tensor.part == BatchTensor::Part::dense) row_bytes += static_cast<int64_t>(tensor.row_bytes());
  }
  rows_per_task_ = std::max<int64_t>(1, task_bytes / row_bytes);
  if (rows_per_task_ > block_rows) rows_per_task_ -= rows_per_task_ % block_rows;
  for (size_t o = 0; o < plan.spec.outputs.size(); o++) {
    const OutputSpec& output = plan.spec.outputs[o];
    const RowWriter* const writer = plan.writers.of(o);
    if (!writer) continue;
    if (writer->takes_long()) rows_per_task_ = 1;
    check_invariant(!output.dense() || output.jobs[0].values == 1 || !(store_ && plan.cache->parts().of_output[o] >= 0),
                    "output '{}' has several values in a row, but a cache keeps its rows", output.name);
  }
  // If the batches in use together exceed the last-level cache, each batch has left the cache before the trainer reads
  // it, or before it is written again. Then streaming stores are faster. (A ring of small batches may have more buffers
  // than counted here, but few of them are in use while the trainer is fast.) A GPU copies what has left the caches
  // twice as fast as what CPUs still have in theirs (41 and 20 GB/s, on an H200 with PCIe 5).
  const uint64_t all_batches = static_cast<uint64_t>(plan.replicas) *
                               static_cast<uint64_t>(plan.spec.host_prefetch + 1) * plan.memory.buffer_bytes;
  const uint64_t cache = last_level_cache();
  const auto stores = for_gpus || all_batches > 2 * cache ? unpack::Stores::streaming
                      : all_batches > cache               ? unpack::Stores::streaming_copies
                                                          : unpack::Stores::cached;
  unpackers_ = make_unpackers(plan, stores);
  cold_unpackers_ = make_unpackers(plan, unpack::Stores::streaming);
}

BatchWriter::Unpackers BatchWriter::make_unpackers(const Plan& plan, unpack::Stores stores) {
  Unpackers all;
  for (const OutputSpec& output : plan.spec.outputs) {
    std::vector<unpack::Unpacker>& unpackers = all.emplace_back();
    const auto add = [&](const unpack::UnpackSpec& spec) { unpackers.emplace_back(spec, simd_level(), stores); };
    for (const DenseJob& job : output.jobs) add(job.unpack);
    if (output.unpack_value) add(*output.unpack_value);
  }
  return all;
}

std::vector<BadRecord> BatchWriter::write(const BatchRows& batch, BatchBuffer& buffer) const {
  check_invariant(batch.rows <= plan_.replica_batch * plan_.frames,
                  "a batch has {} rows, but its buffer has room for {} rows", batch.rows,
                  plan_.replica_batch * plan_.frames);
  BatchContent& content = buffer.content;
  content.epoch = batch.epoch;
  content.step = batch.step;
  content.rows = batch.rows / plan_.frames;
  for (size_t t = 0; t < plan_.memory.tensors.size(); t++) {
    const BatchTensor& tensor = plan_.memory.tensors[t];
    Shape& shape = content.tensors[t].tensor.shape;
    if (tensor.part == BatchTensor::Part::dense || tensor.part == BatchTensor::Part::valid) {
      shape = plan_.spec.window ? tensor.shape.with_rows(plan_.frames).with_rows(content.rows)
                                : tensor.shape.with_rows(batch.rows);
    } else if (has_made_steps(tensor)) {
      shape = tensor.shape.with_rows(longest_row(tensor, batch)).with_rows(batch.rows);
      check_invariant(content.tensors[t].tensor.size_bytes() <= tensor.capacity, "tensor '{}' has room for {} bytes",
                      tensor.name, tensor.capacity);
    }
  }

  using Clock = std::chrono::steady_clock;
  const bool is_cold = buffer.written != Clock::time_point() && Clock::now() - buffer.written > leaves_caches_after;
  const Unpackers& unpackers = is_cold ? cold_unpackers_ : unpackers_;
  const std::vector<Rows> later = rows_of_later_pass(batch, buffer.passes);
  Failures failures(batch);
  std::atomic<uint64_t> audit{0}, audit_of_later{0};
  std::atomic<int64_t> valid{0};
  side_by_side(batch.rows, rows_per_task_, [&](int64_t begin, int64_t end) {
    std::array<BatchRow, block_rows> rows;
    for (int64_t first = begin; first < end; first += block_rows) {
      const int64_t last = std::min(end, first + block_rows);
      const std::span of_block = std::span(rows).first(rows_of_batch(batch, first, last, rows.data()).size());
      const bool changed = act_out_faults(of_block);
      RowBlock block{first, of_block, !changed && in_sequence(batch, first, last)};
      if (batch.of_step->has_filler) failures.add_bad(block);
      write_block(block, unpackers, buffer, failures);
      const Tally part = tally(block);
      for (const Rows& rows_of_later : later) {
        const int64_t from = std::max(first, rows_of_later.first), until = std::min(last, rows_of_later.last);
        if (from >= until) continue;
        const auto skipped = static_cast<size_t>(from - first), count = static_cast<size_t>(until - from);
        audit_of_later += tally({from, of_block.subspan(skipped, count), block.in_sequence}).audit;
      }
      audit += part.audit;
      valid += part.valid;
    }
  });
  Failures::Found failed = failures.take();
  add_padding_of(batch, failed.rows);
  std::sort(failed.rows.begin(), failed.rows.end());
  failed.rows.erase(std::unique(failed.rows.begin(), failed.rows.end()), failed.rows.end());
  fill_failed(failed.rows, batch.rows, buffer);
  content.audit = audit;
  content.bad_audit = 0;
  for (const BadRecord& bad : failed.records) {
    const int64_t row = bad.row - batch.wanted.first;
    const auto has = [row](Rows rows) { return rows.first <= row && row < rows.last; };
    content.bad_audit += bad.audit.as_stored;
    if (std::ranges::any_of(later, has)) audit_of_later += bad.audit.as_stored;
  }
  buffer.passes.later = audit_of_later;
  content.valid_count = plan_.frames > 1 ? valid_windows(buffer) : valid.load();

  buffer.written = Clock::now();
  for (size_t t = 0; t < plan_.memory.tensors.size(); t++) {
    const BatchTensor::Part part = plan_.memory.tensors[t].part;
    if (part != BatchTensor::Part::padded && part != BatchTensor::Part::values && part != BatchTensor::Part::bytes)
      continue;
    if (has_made_steps(plan_.memory.tensors[t])) continue;
    const auto& of_output = unpackers_[static_cast<size_t>(plan_.memory.tensors[t].output)];
    write_ragged(plan_, t, of_output.empty() ? nullptr : &of_output.front(), batch, failed.rows, buffer);
  }
  return std::move(failed.records);
}

void BatchWriter::read_ahead(const Chunk& chunk) const noexcept {
  std::array<std::span<const std::byte>, block_rows> values;
  for (size_t o = 0; o < plan_.spec.outputs.size(); o++) {
    const OutputSpec& output = plan_.spec.outputs[o];
    const RowWriter* const writer = plan_.writers.of(o);
    if (output.internal || !output.dense() || !writer || !writer->reads_ahead()) continue;
    const auto number = static_cast<size_t>(output.jobs[0].column.number);
    const uint64_t all = chunk.rows() * output.jobs[0].values;
    for (uint64_t at = 0; at < all;) {
      size_t count = 0;
      for (; count < values.size() && at < all; at++)
        values[count++] = value_at(plan_.spec.features[number].dtype, chunk.features()[number], at);
      writer->read_ahead(std::span(values).first(count));
    }
  }
}

// Adds to `failed` the padding rows that refer to a failed row of a sample. In an output of varying length a padding
// row has no values, so it cannot have failed there itself. But in dense tensors it is a copy of the failed row, and
// must become a copy of a good row, too.
void BatchWriter::add_padding_of(const BatchRows& batch, std::vector<int64_t>& failed) {
  const auto row_at = [&](int64_t number) {
    BatchRow row;
    rows_of_batch(batch, number, number + 1, &row);
    return row;
  };
  for (size_t i = 0, count = failed.size(); i < count; i++) {
    const BatchRow sample = row_at(failed[i]);
    if (sample.filler) continue;
    for (const int64_t side : {-1, 1})
      for (int64_t number = failed[i] + side; number >= 0 && number < batch.rows; number += side) {
        const BatchRow row = row_at(number);
        if (!row.filler || row.chunk != sample.chunk || row.row != sample.row) break;
        failed.push_back(number);
      }
  }
}

// Fills the rows that could not be written, or whose records are bad. In a dense tensor such a row becomes a copy of
// the nearest good row or, if there is none, what it would be if all columns were zeros. In a tensor whose steps a
// RowWriter makes, it becomes zeros. `failed` is ascending, and has no row twice.
void BatchWriter::fill_failed(std::span<const int64_t> failed, int64_t rows, BatchBuffer& buffer) const {
  if (failed.empty()) return;
  const bool has_good = static_cast<int64_t>(failed.size()) < rows;
  const std::optional<Packing> packing = has_good ? std::nullopt : std::optional(pack(plan_.spec));
  for (size_t first = 0, last = 0; first < failed.size(); first = last) {
    while (last < failed.size() && failed[last] <= failed[first] + static_cast<int64_t>(last - first)) last++;
    // Here failed[first] to failed[last - 1] are consecutive rows, and the rows before and after them are good.
    const int64_t before = failed[first] - 1, after = failed[last - 1] + 1;
    for (int64_t row = before + 1; row < after; row++) {
      const bool from_before = before >= 0 && (after == rows || row - before <= after - row);
      for (size_t t = 0; t < plan_.memory.tensors.size(); t++) {
        const BatchTensor& tensor = plan_.memory.tensors[t];
        const bool has_steps = has_made_steps(tensor);
        if (tensor.part != BatchTensor::Part::dense && !has_steps) continue;
        auto& [_, view, lent] = buffer.content.tensors[t];
        const size_t bytes = view.size_bytes() / static_cast<size_t>(rows);
        std::byte* const memory = buffer.memory + tensor.offset;
        if (std::exchange(lent, false)) view.data = memory;
        std::byte* const out = memory + static_cast<size_t>(row) * bytes;
        if (has_steps)
          std::memset(out, 0, bytes);
        else if (has_good)
          std::memcpy(out, memory + static_cast<size_t>(from_before ? before : after) * bytes, bytes);
        else
          write_row_of_zeros(plan_.spec.outputs[static_cast<size_t>(tensor.output)],
                             packing->outputs[static_cast<size_t>(tensor.output)], out);
      }
    }
  }
}

// A step may have rows of two passes over the data. Returns the rows of the batch that belong to the later pass, and
// sets `passes.pass` to the older one.
std::vector<Rows> BatchWriter::rows_of_later_pass(const BatchRows& batch, PassAudit& passes) const {
  std::vector<Rows> later;
  passes = {};
  if (!plan_.expected_audit.passes) return later;
  const auto& [borders, sum, steps_per_epoch] = *plan_.expected_audit.passes;
  const uint64_t step = batch.epoch * steps_per_epoch + batch.step;
  passes.pass = borders.ended_before(step);
  borders.for_each_later(step, [&](int64_t begin, int64_t end) {
    const Rows rows{std::max(begin * plan_.frames, batch.wanted.first) - batch.wanted.first,
                    std::min(end * plan_.frames, batch.wanted.last) - batch.wanted.first};
    if (rows.first < rows.last) later.push_back(rows);
  });
  return later;
}

// Returns how many windows have a frame that is not filler.
int64_t BatchWriter::valid_windows(const BatchBuffer& buffer) const {
  const std::byte* valid = buffer.memory + plan_.memory.tensors.front().offset;
  int64_t count = 0;
  for (int64_t window = 0; window < buffer.content.rows; window++, valid += plan_.frames)
    count += std::any_of(valid, valid + plan_.frames, [](std::byte frame) { return frame != std::byte{0}; });
  return count;
}

// If the tensor's bytes are the record's bytes as they lie in the slot, points the tensor at them, so that nothing is
// copied. Returns whether it did.
bool BatchWriter::lend_dense(size_t t, const BatchRow& row, BatchBuffer& buffer) const {
  const BatchTensor& tensor = plan_.memory.tensors[t];
  auto& [_, view, lent] = buffer.content.tensors[t];
  view.data = buffer.memory + tensor.offset;
  lent = false;
  const DenseJob& job = plan_.spec.outputs[static_cast<size_t>(tensor.output)].jobs[0];
  if (job.rows || job.column.kind != ColumnRef::Kind::feature) return false;
  const auto number = static_cast<size_t>(job.column.number);
  const FeatureSpec& feature = plan_.spec.features[number];
  const unpack::Unpacker& unpack = unpackers_[static_cast<size_t>(tensor.output)][0];
  if (feature.dtype != DType::bytes || feature.shape.elements() != 1 || !unpack.is_copy()) return false;
  const std::byte* stored = rows_of(feature)(row.chunk->features()[number], row.row) + unpack.spec().bit_offset / 8;
  if (reinterpret_cast<uintptr_t>(stored) % size_of(tensor.dtype) != 0 ||
      !row.chunk->holds({stored, view.size_bytes()}))
    return false;
  view.data = const_cast<std::byte*>(stored);
  return lent = true;
}

void BatchWriter::write_block(RowBlock& block, const Unpackers& unpackers, BatchBuffer& buffer,
                              Failures& failures) const {
  const std::span rows = block.rows;
  if (plan_.memory.lends) buffer.lender = rows.front().chunk->shared_from_this();
  for (size_t t = 0; t < plan_.memory.tensors.size(); t++) {
    const BatchTensor& tensor = plan_.memory.tensors[t];
    const bool has_steps = has_made_steps(tensor);
    if (!has_steps && tensor.part != BatchTensor::Part::dense) continue;
    if (!has_steps && plan_.memory.lends && lend_dense(t, rows.front(), buffer)) continue;
    const size_t row_bytes =
        tensor.row_bytes() * (has_steps ? static_cast<size_t>(buffer.content.tensors[t].tensor.shape[1]) : 1);
    std::byte* const out = buffer.memory + tensor.offset + static_cast<size_t>(block.first) * row_bytes;
    write_rows(tensor.output, block, unpackers, out, row_bytes, failures);
  }
  // The masks come last, because rows may have failed above.
  for (const BatchTensor& tensor : plan_.memory.tensors) {
    if (tensor.part != BatchTensor::Part::valid) continue;
    std::byte* const out = buffer.memory + tensor.offset + block.first;
    if (block.in_sequence)
      std::memset(out, 1, rows.size());
    else
      for (size_t i = 0; i < rows.size(); i++) out[i] = std::byte{!rows[i].filler};
  }
}

BatchWriter::Tally BatchWriter::tally(const RowBlock& block) noexcept {
  Tally tally;
  if (block.in_sequence) {
    const BatchRow& first = block.rows.front();
    const std::span terms = first.chunk->audit_terms().subspan(first.row, block.rows.size());
    return {std::accumulate(terms.begin(), terms.end(), uint64_t{0}), static_cast<int64_t>(terms.size())};
  }
  for (const BatchRow& row : block.rows) {
    if (row.filler) continue;
    tally.audit += row.chunk->audit_terms()[row.row];
    tally.valid++;
  }
  return tally;
}

void BatchWriter::write_rows(int number, RowBlock& block, const Unpackers& all, std::byte* out, size_t row_bytes,
                             Failures& failures) const {
  const OutputSpec& output = plan_.spec.outputs[static_cast<size_t>(number)];
  const RowWriter* const writer = plan_.writers.of(number);
  if (output.steps || (writer && output.jobs[0].values > 1 && writer->takes_long()))
    return write_steps(number, block, out, row_bytes, failures);
  if (writer && output.jobs[0].values > 1) return write_values(number, block, out, failures);
  if (writer) return run_writer(number, block, out, failures);
  for (size_t j = 0; j < output.jobs.size(); j++)
    write_job(output.jobs[j], block, all[static_cast<size_t>(number)][j], out + output.jobs[j].offset, row_bytes);
}

// Returns whether the tensor's rows are sequences whose steps a RowWriter makes.
bool BatchWriter::has_made_steps(const BatchTensor& tensor) const noexcept {
  return tensor.part == BatchTensor::Part::padded &&
         plan_.spec.outputs[static_cast<size_t>(tensor.output)].steps.has_value();
}

// Returns how many steps the longest row (sequence) of a batch has. Filler has none.
int64_t BatchWriter::longest_row(const BatchTensor& tensor, const BatchRows& batch) const {
  const auto number = static_cast<size_t>(plan_.spec.outputs[static_cast<size_t>(tensor.output)].feature);
  const FeatureSpec& feature = plan_.spec.features[number];
  uint64_t longest = 0;
  std::array<BatchRow, block_rows> rows;
  for (int64_t first = 0; first < batch.rows; first += block_rows)
    for (const BatchRow& row : rows_of_batch(batch, first, std::min(batch.rows, first + block_rows), rows.data()))
      if (!row.filler) longest = std::max(longest, values_of(feature, row.chunk->features()[number], row.row).count);
  return static_cast<int64_t>(longest);
}

// Returns for each row the number of its entry in the store. Filler repeats the values of a different record, so it has
// no entry of its own: KeptRows::none.
std::span<const uint64_t> BatchWriter::entries_of(const RowBlock& block, uint64_t part,
                                                  std::array<uint64_t, block_rows>& entries) const {
  for (size_t i = 0; i < block.rows.size(); i++) {
    const BatchRow& row = block.rows[i];
    entries[i] = KeptRows::none;
    if (row.filler) continue;
    const Extent& extent = row.chunk->extent_of(row.row);
    const auto first = plan_.cache->entry_of(extent.file, extent.record_of(row.row));
    // A cache file that a different process has made may have fewer entries.
    if (first && *first + part < store_->entries()) entries[i] = *first + part;
  }
  return std::span(entries).first(block.rows.size());
}

void BatchWriter::run_writer(int of, RowBlock& block, std::byte* out, Failures& failures) const {
  const OutputSpec& output = plan_.spec.outputs[static_cast<size_t>(of)];
  const auto number = static_cast<size_t>(output.jobs[0].column.number);
  const FeatureSpec& feature = plan_.spec.features[number];
  std::array<std::span<const std::byte>, block_rows> values;
  for (size_t i = 0; i < block.rows.size(); i++) {
    const BatchRow& row = block.rows[i];
    values[i] = stored_value(feature, row.chunk->features()[number], row.row);
  }
  const int part = store_ ? plan_.cache->parts().of_output[static_cast<size_t>(of)] : -1;
  std::array<uint64_t, block_rows> entries;
  std::optional<KeptRows> kept;
  if (part >= 0)
    kept.emplace(KeptRows{*store_, entries_of(block, static_cast<uint64_t>(part), entries),
                          of_thread(cache_scratch_, plan_.cache->scratch_bytes())});
  RowNumbers numbers = numbers_of(block, failures.batch);
  numbers.kept = kept ? &*kept : nullptr;
  RowOutcome outcome =
      call(*plan_.writers.of(of), std::span(values).first(block.rows.size()), numbers, out, output.row_bytes());
  if (kept) {
    const auto samples = static_cast<uint64_t>(std::ranges::count(block.rows, false, &BatchRow::filler));
    found_.fetch_add(outcome.found, std::memory_order_relaxed);
    not_found_.fetch_add(samples - outcome.found, std::memory_order_relaxed);
  }
  for (RowError& failure : outcome.failed) failures.add(block, std::move(failure), feature.name, plan_);
}

// Makes rows of several values each, many values at a time. If some values fail, the row fails with the error of the
// first of them, and values after it need not be made.
void BatchWriter::write_values(int of, RowBlock& block, std::byte* out, Failures& failures) const {
  const OutputSpec& output = plan_.spec.outputs[static_cast<size_t>(of)];
  const size_t each = output.jobs[0].values, bytes = output.row_bytes() / each;
  const auto number = static_cast<size_t>(output.jobs[0].column.number);
  const FeatureSpec& feature = plan_.spec.features[number];
  std::array<std::span<const std::byte>, block_rows> values;
  size_t count = 0, written = 0;           // of `values`; of all values
  size_t last_failed = block.rows.size();  // the last row that failed; at first none
  const auto write_some = [&] {
    RowOutcome outcome = call(*plan_.writers.of(of), std::span(values).first(count), {}, out + written * bytes, bytes);
    for (RowError& failure : outcome.failed) {
      const size_t value = written + failure.row, row = value / each;
      if (std::exchange(last_failed, row) == row) continue;
      failure.row = static_cast<uint32_t>(row);
      failure.message = fmt::format("value {}: {}", value % each, failure.message);
      failures.add(block, std::move(failure), feature.name, plan_);
    }
    written += count;
    count = 0;
  };
  for (size_t row = 0; row < block.rows.size(); row++) {
    const Column& column = block.rows[row].chunk->features()[number];
    for (size_t i = 0; i < each; i++) {
      values[count++] = value_at(feature.dtype, column, block.rows[row].row * each + i);
      if (count < values.size()) continue;
      write_some();
      if (last_failed != row) continue;
      written = (row + 1) * each;
      break;
    }
  }
  if (count > 0) write_some();
}

// Makes rows that are sequences: makes their steps in parallel, each from one value of the record. If some steps fail,
// the row fails with the error of the first of them. The part of a row after its last step becomes zeros.
void BatchWriter::write_steps(int of, RowBlock& block, std::byte* out, size_t row_bytes, Failures& failures) const {
  const OutputSpec& output = plan_.spec.outputs[static_cast<size_t>(of)];
  const bool is_padded = output.steps.has_value();
  const auto number = static_cast<size_t>(is_padded ? output.feature : output.jobs[0].column.number);
  const size_t step_bytes = is_padded ? output.row_bytes() : output.row_bytes() / output.jobs[0].values;
  const FeatureSpec& feature = plan_.spec.features[number];
  const RowNumbers numbers = numbers_of(block, failures.batch);
  for (size_t i = 0; i < block.rows.size(); i++, out += row_bytes) {
    const BatchRow row = block.rows[i];
    ValuesRef own;
    if (!is_padded || !row.filler) own = values_of(feature, row.chunk->features()[number], row.row);
    Mutex mutex;
    std::optional<RowError> first;  // its `row` is the number of the step
    side_by_side(static_cast<int64_t>(own.count), 1, [&](int64_t begin, int64_t end) {
      for (auto step = static_cast<size_t>(begin); step < static_cast<size_t>(end); step++) {
        const BytesRef& bytes = static_cast<const BytesRef*>(own.values)[step];
        const std::span<const std::byte> value(bytes.data, bytes.size);
        RowOutcome outcome = call(*plan_.writers.of(of), {&value, 1}, {numbers.epoch, numbers.sample(i)},
                                  out + step * step_bytes, step_bytes);
        if (outcome.failed.empty()) continue;
        const Lock lock(mutex);
        if (first && first->row < step) continue;
        first = std::move(outcome.failed.front());
        first->row = static_cast<uint32_t>(step);
      }
    });
    if (first)
      failures.add(
          block,
          {static_cast<uint32_t>(i), first->category, -1, fmt::format("step {}: {}", first->row, first->message)},
          feature.name, plan_);
    const size_t written = own.count * step_bytes;
    std::memset(out + written, 0, row_bytes - written);
  }
}

// Calls a row writer with the scratch memory of this thread.
RowOutcome BatchWriter::call(const RowWriter& writer, std::span<const std::span<const std::byte>> values,
                             const RowNumbers& rows, std::byte* out, size_t stride) const {
  RowOutcome outcome;
  writer.write(values, rows, out, stride, of_thread(scratch_, plan_.memory.scratch_bytes).first(writer.scratch_bytes()),
               outcome);
  if (outcome.warnings > 0) warnings_ += outcome.warnings;
  return outcome;
}

// Returns this thread's part of memory that has `each` bytes for each thread.
std::span<std::byte> BatchWriter::of_thread(const gpu::Memory& memory, uint64_t each) const {
  const auto thread = static_cast<size_t>(tbb::this_task_arena::current_thread_index());
  check_invariant(thread < static_cast<size_t>(plan_.threads), "thread {} writes rows, but only {} threads are planned",
                  thread, plan_.threads);
  return memory.bytes().subspan(thread * each, each);
}

RowNumbers BatchWriter::numbers_of(const RowBlock& block, const BatchRows& batch) const noexcept {
  const auto frames = static_cast<uint64_t>(plan_.frames);
  return {batch.epoch,
          batch.step * static_cast<uint64_t>(plan_.global_batch) * frames +
              static_cast<uint64_t>(batch.of_step->moved + batch.wanted.first + block.first),
          frames};
}

void BatchWriter::write_job(const DenseJob& job, const RowBlock& block, const unpack::Unpacker& unpack, std::byte* out,
                            size_t row_bytes) const {
  const std::span rows = block.rows;
  const auto number = static_cast<size_t>(job.column.number);
  std::array<const std::byte*, block_rows> at;
  const std::span pointers(at.data(), rows.size());
  switch (job.column.kind) {
    case ColumnRef::Kind::feature: {
      const FeatureSpec& feature = plan_.spec.features[number];
      const RowAccess access = rows_of(feature);
      const size_t value_bytes = row_bytes / job.values;
      for (size_t value = 0; value < job.values; value++, out += value_bytes) {
        locate(
            block, access, [number](const Chunk& chunk) { return chunk.features()[number]; }, job.values, value,
            at.data());
        if (access.indirect && !block.in_sequence)
          unpack_scattered(unpack, pointers, static_cast<size_t>(feature.length), out, row_bytes);
        else
          unpack(pointers, out, row_bytes);
      }
      return;
    }
    case ColumnRef::Kind::expression:
      locate(
          block, rows_of_expression, [number](const Chunk& chunk) { return chunk.expressions()[number]; }, 1, 0,
          at.data());
      return unpack(pointers, out, row_bytes);
    case ColumnRef::Kind::reserved: {
      std::array<int64_t, block_rows> values;
      for (size_t i = 0; i < rows.size(); i++) {
        values[i] = reserved_value(plan_, job.column, *rows[i].chunk, rows[i].row);
        at[i] = reinterpret_cast<const std::byte*>(&values[i]);
      }
      return unpack(pointers, out, row_bytes);
    }
  }
}

}  // namespace feedline::flow
