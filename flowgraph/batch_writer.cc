#include "flowgraph/batch_writer.h"

#include <oneapi/tbb/blocked_range.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "flowgraph/audit.h"
#include "flowgraph/compute.h"

namespace feedline::flow {
namespace {

// Enough work for a task to be worth its scheduling, little enough to stay in the second-level cache.
constexpr int64_t task_bytes = 256 << 10;

int64_t number_in_source(const Plan& plan, const Chunk& chunk, uint32_t row) {
  return static_cast<int64_t>(plan.data.files[chunk.ticket.file].first_record + chunk.ticket.first_record + row);
}

int64_t reserved_value(const Plan& plan, Reserved what, const Chunk& chunk, uint32_t row) {
  switch (what) {
    case Reserved::record:
      return number_in_source(plan, chunk, row);
    case Reserved::file:
      return chunk.ticket.file;
    case Reserved::offset:
      return static_cast<int64_t>(chunk.offset_of(row));
    case Reserved::source:
      return plan.data.files[chunk.ticket.file].source;
  }
  return -1;
}

// The values of a row: one after another, float, int64_t or BytesRef.
ValuesRef values_of(const FeatureSpec& feature, const Column& column, uint32_t row) {
  if (feature.kind != FeatureKind::fixed) return column.as<ValuesRef>()[row];
  const auto elements = static_cast<uint64_t>(feature.shape.elements());
  const size_t size = feature.dtype == DType::bytes ? sizeof(BytesRef) : size_of(feature.dtype);
  return {column.as<std::byte>() + row * elements * size, elements};
}

template <typename Body>
void side_by_side(int64_t count, int64_t grain, const Body& body) {
  if (count <= grain) return body(int64_t{0}, count);
  // Isolated: while it waits for its blocks, this thread must not pick up other work of the graph.
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<int64_t>(0, count, static_cast<size_t>(grain)),
        [&](const tbb::blocked_range<int64_t>& range) { body(range.begin(), range.end()); }, tbb::simple_partitioner());
  });
}

}  // namespace

BatchWriter::BatchWriter(const Plan& plan) : plan_(plan) {
  int64_t row_bytes = 1;
  for (const BatchTensor& tensor : plan.tensors) {
    if (tensor.part == BatchTensor::Part::dense)
      row_bytes += tensor.shape.elements() * static_cast<int64_t>(size_of(tensor.dtype));
    else if (tensor.part != BatchTensor::Part::valid)
      any_variable_ = true;
  }
  rows_per_task_ = std::max<int64_t>(1, task_bytes / row_bytes);
  if (rows_per_task_ > block_rows) rows_per_task_ -= rows_per_task_ % block_rows;
  for (const OutputSpec& output : plan.spec.outputs) {
    unpackers_.emplace_back();
    if (output.unpack)
      unpackers_.back().emplace_back(*output.unpack);
    else if (output.unpack_value)
      unpackers_.back().emplace_back(*output.unpack_value);
    else if (const auto* stack = std::get_if<FromStack>(&output.from))
      for (const gpu::UnpackSpec& spec : stack->unpack) unpackers_.back().emplace_back(spec);
  }
}

void BatchWriter::write(const BatchRows& batch, BatchBuffer& buffer) const {
  BatchContent& content = buffer.content;
  content.epoch = batch.epoch;
  content.step = batch.step;
  content.rows = batch.rows;
  for (size_t t = 0; t < plan_.tensors.size(); t++)
    if (plan_.tensors[t].part == BatchTensor::Part::dense || plan_.tensors[t].part == BatchTensor::Part::valid)
      content.tensors[t].tensor.shape = plan_.tensors[t].shape.with_rows(batch.rows);

  std::atomic<uint64_t> audit{0};
  std::atomic<int64_t> valid{0};
  side_by_side(batch.rows, rows_per_task_, [&](int64_t begin, int64_t end) {
    std::array<Row, block_rows> rows;
    for (int64_t first = begin; first < end; first += block_rows) {
      const Tally part =
          write_block(rows_of_batch(batch, first, std::min(end, first + block_rows), rows.data()), first, buffer);
      audit += part.audit;
      valid += part.valid;
    }
  });
  content.audit = audit;
  content.valid_count = valid;

  if (!any_variable_) return;
  for (size_t t = 0; t < plan_.tensors.size(); t++) {
    const BatchTensor& tensor = plan_.tensors[t];
    if (tensor.part == BatchTensor::Part::padded) write_padded(t, batch, buffer);
    if (tensor.part == BatchTensor::Part::values || tensor.part == BatchTensor::Part::bytes)
      write_variable(t, batch, buffer);
  }
}

BatchWriter::Rows BatchWriter::rows_of_batch(const BatchRows& batch, int64_t begin, int64_t end, Row* out) {
  size_t n = 0;
  int64_t at = 0;
  for (const RowRun& run : batch.runs) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + run.count);
    const std::vector<uint32_t>& filler = run.chunk->filler;
    for (int64_t i = from; i < to; i++) {
      const uint32_t row = run.first + (run.padding ? 0 : static_cast<uint32_t>(i - at));
      const bool stands_in = run.padding || (!filler.empty() && std::binary_search(filler.begin(), filler.end(), row));
      out[n++] = {run.chunk.get(), row, stands_in};
    }
    at += run.count;
    if (at >= end) break;
  }
  return {out, n};
}

BatchWriter::Tally BatchWriter::write_block(Rows rows, int64_t first, const BatchBuffer& buffer) const {
  for (const BatchTensor& tensor : plan_.tensors) {
    std::byte* out = buffer.memory + tensor.offset;
    if (tensor.part == BatchTensor::Part::valid) {
      for (size_t i = 0; i < rows.size(); i++) out[first + static_cast<int64_t>(i)] = std::byte{!rows[i].filler};
    } else if (tensor.part == BatchTensor::Part::dense) {
      const auto row_bytes = tensor.shape.elements() * static_cast<int64_t>(size_of(tensor.dtype));
      write_dense(tensor.output, rows, out + first * row_bytes);
    }
  }
  return tally(rows);
}

BatchWriter::Tally BatchWriter::tally(Rows rows) const {
  Tally tally;
  const Chunk* chunk = nullptr;
  uint64_t source = 0, number = 0;
  for (const Row& row : rows) {
    if (row.chunk != chunk) {
      chunk = row.chunk;
      source = mix64(plan_.data.files[chunk->ticket.file].source);
      number = static_cast<uint64_t>(number_in_source(plan_, *chunk, 0));
    }
    if (row.filler) continue;
    tally.audit += audit_of(source, number + row.row, chunk->records()[row.row].stored_crc);
    tally.valid++;
  }
  return tally;
}

void BatchWriter::write_dense(int o, Rows rows, std::byte* out) const {
  const OutputSpec& output = plan_.spec.outputs[static_cast<size_t>(o)];
  const std::vector<gpu::Unpacker>& unpackers = unpackers_[static_cast<size_t>(o)];
  const gpu::Unpacker& unpack = unpackers[0];
  std::array<const std::byte*, block_rows> at;
  const std::span pointers(at.data(), rows.size());

  // element: of a bytes feature with several values in a record.
  const auto unpack_feature = [&](int f, size_t elements, size_t element, const gpu::Unpacker& unpacker, std::byte* to,
                                  size_t stride) {
    const FeatureSpec& feature = plan_.spec.features[static_cast<size_t>(f)];
    const Chunk* chunk = nullptr;
    RowAccess access;
    for (size_t i = 0; i < rows.size(); i++) {
      if (rows[i].chunk != chunk) {
        chunk = rows[i].chunk;
        access = rows_of(feature, chunk->features()[static_cast<size_t>(f)]);
      }
      at[i] = access(rows[i].row * elements + element);
    }
    unpacker(pointers, to, stride);
  };

  if (const auto* from = std::get_if<FromFeature>(&output.from)) {
    const FeatureSpec& feature = plan_.spec.features[static_cast<size_t>(from->feature)];
    const size_t elements = feature.dtype == DType::bytes ? static_cast<size_t>(feature.shape.elements()) : 1;
    const size_t row_bytes = static_cast<size_t>(output.shape.elements()) * size_of(output.dtype);
    for (size_t e = 0; e < elements; e++)
      unpack_feature(from->feature, elements, e, unpack, out + e * (row_bytes / elements),
                     elements == 1 ? 0 : row_bytes);
  } else if (const auto* stack = std::get_if<FromStack>(&output.from)) {
    const size_t size = size_of(output.dtype), stride = stack->features.size() * size;
    for (size_t i = 0; i < stack->features.size(); i++)
      unpack_feature(stack->features[i], 1, 0, unpackers[i], out + i * size, stride);
  } else if (const auto* expression = std::get_if<FromExpression>(&output.from)) {
    for (size_t i = 0; i < rows.size(); i++)
      at[i] =
          rows_of_expression(rows[i].chunk->expressions()[static_cast<size_t>(expression->expression)])(rows[i].row);
    unpack(pointers, out);
  } else {
    const Reserved what = std::get<FromReserved>(output.from).what;
    std::array<int64_t, block_rows> values;
    for (size_t i = 0; i < rows.size(); i++) {
      values[i] = reserved_value(plan_, what, *rows[i].chunk, rows[i].row);
      at[i] = reinterpret_cast<const std::byte*>(&values[i]);
    }
    unpack(pointers, out);
  }
}

void BatchWriter::write_variable(size_t t, const BatchRows& batch, BatchBuffer& buffer) const {
  const BatchTensor& tensor = plan_.tensors[t];
  const auto o = static_cast<size_t>(tensor.output);
  const auto f = static_cast<size_t>(std::get<FromFeature>(plan_.spec.outputs[o].from).feature);
  const FeatureSpec& feature = plan_.spec.features[f];
  const bool bytes = tensor.part == BatchTensor::Part::bytes;
  const size_t splits_at = t + (bytes ? 2 : 1);
  const bool has_splits =
      splits_at < plan_.tensors.size() && plan_.tensors[splits_at].part == BatchTensor::Part::row_splits;

  // Where each row begins: values in `starts`, and bytes of a bytes feature in `offsets`.
  std::vector<ValuesRef> values(static_cast<size_t>(batch.rows));
  std::vector<int64_t> starts(static_cast<size_t>(batch.rows) + 1);
  auto* offsets = bytes ? reinterpret_cast<int64_t*>(buffer.memory + plan_.tensors[t + 1].offset) : nullptr;
  const BytesRef empty;
  int64_t total = 0, total_bytes = 0;
  std::array<Row, block_rows> rows;
  for (int64_t first = 0; first < batch.rows; first += block_rows) {
    const Rows block = rows_of_batch(batch, first, std::min(batch.rows, first + block_rows), rows.data());
    for (size_t i = 0; i < block.size(); i++) {
      const auto r = static_cast<size_t>(first) + i;
      values[r] = values_of(feature, block[i].chunk->features()[f], block[i].row);
      if (block[i].filler) values[r] = has_splits ? ValuesRef{} : ValuesRef{&empty, 1};
      starts[r] = total;
      total += static_cast<int64_t>(values[r].count);
      if (!bytes) continue;
      const auto* refs = static_cast<const BytesRef*>(values[r].values);
      for (uint64_t v = 0; v < values[r].count; v++) {
        *offsets++ = total_bytes;
        total_bytes += static_cast<int64_t>(refs[v].size);
      }
    }
  }
  starts.back() = total;

  auto& tensors = buffer.content.tensors;
  tensors[t].tensor.shape = tensor.shape.with_rows(bytes ? total_bytes : total);
  if (bytes) {
    *offsets = total_bytes;
    offsets = reinterpret_cast<int64_t*>(buffer.memory + plan_.tensors[t + 1].offset);
    tensors[t + 1].tensor.shape = Shape{total + 1};
  }
  if (has_splits) {
    std::memcpy(buffer.memory + plan_.tensors[splits_at].offset, starts.data(), starts.size() * sizeof(int64_t));
    tensors[splits_at].tensor.shape = Shape{batch.rows + 1};
  }

  const size_t size = size_of(tensor.dtype);
  const int64_t average = std::max<int64_t>(
      1, (bytes ? total_bytes : total * static_cast<int64_t>(size)) / std::max<int64_t>(1, batch.rows));
  side_by_side(batch.rows, std::max<int64_t>(1, task_bytes / average), [&](int64_t begin, int64_t end) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); r++) {
      std::byte* out = buffer.memory + tensor.offset;
      if (bytes) {
        const auto* refs = static_cast<const BytesRef*>(values[r].values);
        for (uint64_t v = 0; v < values[r].count; v++)
          if (refs[v].size > 0)
            std::memcpy(out + offsets[static_cast<size_t>(starts[r]) + v], refs[v].data, refs[v].size);
        continue;
      }
      const size_t stored = size_of(feature.dtype);
      out += static_cast<size_t>(starts[r]) * size;
      const auto* at = static_cast<const std::byte*>(values[r].values);
      std::array<const std::byte*, block_rows> pointers;
      for (uint64_t v = 0; v < values[r].count;) {
        const uint64_t count = std::min<uint64_t>(values[r].count - v, block_rows);
        for (uint64_t i = 0; i < count; i++) pointers[i] = at + (v + i) * stored;
        unpackers_[o][0](std::span(pointers).first(count), out + v * size);
        v += count;
      }
    }
  });
}

void BatchWriter::write_padded(size_t t, const BatchRows& batch, BatchBuffer& buffer) const {
  const BatchTensor& tensor = plan_.tensors[t];
  const auto o = static_cast<size_t>(tensor.output);
  const auto f = static_cast<size_t>(std::get<FromFeature>(plan_.spec.outputs[o].from).feature);
  const FeatureSpec& feature = plan_.spec.features[f];
  const size_t step = static_cast<size_t>(tensor.shape.elements());
  const size_t stored = size_of(feature.dtype), size = size_of(tensor.dtype);

  std::vector<ValuesRef> values(static_cast<size_t>(batch.rows));
  std::array<Row, block_rows> rows;
  size_t longest = 0;  // in steps
  for (int64_t first = 0; first < batch.rows; first += block_rows) {
    const Rows block = rows_of_batch(batch, first, std::min(batch.rows, first + block_rows), rows.data());
    for (size_t i = 0; i < block.size(); i++) {
      ValuesRef& of_row = values[static_cast<size_t>(first) + i];
      of_row = values_of(feature, block[i].chunk->features()[f], block[i].row);
      longest = std::max(longest, static_cast<size_t>(of_row.count) / step);
    }
  }
  Shape shape = tensor.shape.with_rows(static_cast<int64_t>(longest)).with_rows(batch.rows);
  buffer.content.tensors[t].tensor.shape = shape;

  int64_t pad_int = feature.default_ints.empty() ? 0 : feature.default_ints.front();
  float pad_float = feature.default_floats.empty() ? 0 : feature.default_floats.front();
  const auto* pad = feature.dtype == DType::int64 ? reinterpret_cast<const std::byte*>(&pad_int)
                                                  : reinterpret_cast<const std::byte*>(&pad_float);
  const size_t row_values = longest * step;
  side_by_side(batch.rows, std::max<int64_t>(1, task_bytes / static_cast<int64_t>(1 + row_values * size)),
               [&](int64_t begin, int64_t end) {
                 std::array<const std::byte*, block_rows> pointers;
                 for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); r++) {
                   const auto* at = static_cast<const std::byte*>(values[r].values);
                   std::byte* out = buffer.memory + tensor.offset + r * row_values * size;
                   for (size_t v = 0; v < row_values;) {
                     const size_t count = std::min<size_t>(row_values - v, block_rows);
                     for (size_t i = 0; i < count; i++)
                       pointers[i] = v + i < values[r].count ? at + (v + i) * stored : pad;
                     unpackers_[o][0](std::span(pointers).first(count), out + v * size);
                     v += count;
                   }
                 }
               });
}

}  // namespace feedline::flow
