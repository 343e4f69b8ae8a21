#include "flowgraph/batch/ragged_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/invariant.h"
#include "flowgraph/batch/batch_rows.h"
#include "flowgraph/parse/formula_columns.h"

namespace feedline::flow {
namespace {

using Part = BatchTensor::Part;

/// Row r has the values [starts[r], starts[r + 1]) of the tensor: first its own values, then padding. So `starts` is
/// the prefix sum of the rows' lengths.
struct Layout {
  std::vector<ValuesRef> own;
  std::vector<int64_t> starts;
  std::vector<StepsRef> steps;  // if the feature is nested: the steps of each row
  int64_t longest = 0;          // if padded: how many steps the longest row has

  int64_t values() const { return starts.back(); }
};

Layout lay_out(const FeatureSpec& feature, size_t number, bool padded, const BatchRows& batch,
               std::span<const int64_t> failed) {
  Layout layout;
  layout.own.resize(static_cast<size_t>(batch.rows));
  layout.starts.resize(static_cast<size_t>(batch.rows) + 1);
  if (feature.nested()) layout.steps.resize(layout.own.size());
  const int64_t step = feature.shape.elements();
  std::array<BatchRow, block_rows> rows;
  for (int64_t first = 0; first < batch.rows; first += block_rows) {
    const auto block = rows_of_batch(batch, first, std::min(batch.rows, first + block_rows), rows.data());
    for (size_t i = 0; i < block.size(); i++) {
      if (block[i].filler) continue;
      if (std::binary_search(failed.begin(), failed.end(), first + static_cast<int64_t>(i))) continue;
      ValuesRef& own = layout.own[static_cast<size_t>(first) + i];
      const Column& column = block[i].chunk->features()[number];
      own = values_of(feature, column, block[i].row);
      if (feature.nested()) layout.steps[static_cast<size_t>(first) + i] = column.as<StepsRef>()[block[i].row];
      if (padded && step > 0) layout.longest = std::max(layout.longest, static_cast<int64_t>(own.count) / step);
    }
  }
  const bool fixed = feature.kind == FeatureKind::fixed;
  for (size_t r = 0; r < layout.own.size(); r++) {
    const int64_t count = fixed ? step : padded ? layout.longest * step : static_cast<int64_t>(layout.own[r].count);
    layout.starts[r + 1] = layout.starts[r] + count;
  }
  return layout;
}

void write_numbers(const FeatureSpec& feature, const Layout& layout, const unpack::Unpacker& cast, std::byte* out) {
  const int64_t int_padding = feature.default_ints.empty() ? 0 : feature.default_ints.front();
  const float float_padding = feature.default_floats.empty() ? 0 : feature.default_floats.front();
  const auto* padding = feature.dtype == DType::int64 ? reinterpret_cast<const std::byte*>(&int_padding)
                                                      : reinterpret_cast<const std::byte*>(&float_padding);
  const size_t stored = size_of(feature.dtype), size = size_of(cast.spec().out);
  const auto rows = static_cast<int64_t>(layout.own.size());
  const int64_t row_bytes = 1 + layout.values() * static_cast<int64_t>(size) / rows;
  side_by_side(rows, std::max<int64_t>(1, task_bytes / row_bytes), [&](int64_t begin, int64_t end) {
    std::array<const std::byte*, block_rows> at;
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); r++) {
      const auto* own = static_cast<const std::byte*>(layout.own[r].values);
      const auto all = static_cast<size_t>(layout.starts[r + 1] - layout.starts[r]);
      std::byte* to = out + static_cast<size_t>(layout.starts[r]) * size;
      for (size_t v = 0; v < all; v += block_rows) {
        const size_t count = std::min<size_t>(all - v, block_rows);
        for (size_t i = 0; i < count; i++) at[i] = v + i < layout.own[r].count ? own + (v + i) * stored : padding;
        cast(std::span(at).first(count), to + v * size);
      }
    }
  });
}

void check_room(const BatchTensor& tensor, int64_t values, size_t size) {
  check_invariant(static_cast<uint64_t>(values) * size <= tensor.capacity,
                  "{} values of {} bytes do not fit into tensor '{}', which has room for {} bytes", values, size,
                  tensor.name, tensor.capacity);
}

// Writes the offsets of the values, and copies their bytes to `out`, the memory of `tensor`. If `out` is null, the
// bytes are delivered where they lie in the slot, and are not copied. Returns how many bytes there are.
int64_t write_bytes(const FeatureSpec& feature, const Layout& layout, int64_t* offsets, const BatchTensor& tensor,
                    std::byte* out) {
  BytesRef padding;
  const bool sequence = feature.kind == FeatureKind::fixed_sequence;
  if (sequence && !feature.default_bytes.empty())
    padding = {reinterpret_cast<const std::byte*>(feature.default_bytes.front().data()),
               feature.default_bytes.front().size()};
  const auto value = [&](size_t r, uint64_t v) {
    return v < layout.own[r].count ? static_cast<const BytesRef*>(layout.own[r].values)[v] : padding;
  };
  const auto rows = static_cast<int64_t>(layout.own.size());
  int64_t total = 0;
  for (size_t r = 0; r < layout.own.size(); r++)
    for (int64_t at = layout.starts[r]; at < layout.starts[r + 1]; at++) {
      offsets[at] = total;
      total += static_cast<int64_t>(value(r, static_cast<uint64_t>(at - layout.starts[r])).size);
    }
  offsets[layout.values()] = total;
  if (!out) return total;
  check_room(tensor, total, 1);
  side_by_side(rows, std::max<int64_t>(1, task_bytes / (1 + total / rows)), [&](int64_t begin, int64_t end) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); r++)
      for (int64_t at = layout.starts[r]; at < layout.starts[r + 1]; at++) {
        const BytesRef bytes = value(r, static_cast<uint64_t>(at - layout.starts[r]));
        if (bytes.size > 0) std::memcpy(out + offsets[at], bytes.data, bytes.size);
      }
  });
  return total;
}

// Writes where each step of the batch begins in the values, and where each row begins in the steps.
void write_splits(const Layout& layout, std::span<int64_t> step_splits, std::span<int64_t> row_splits) {
  step_splits[0] = row_splits[0] = 0;
  size_t step = 0;
  for (size_t r = 0; r < layout.steps.size(); r++) {
    const StepsRef& row = layout.steps[r];
    for (uint64_t i = 0; i < row.steps; i++) step_splits[++step] = layout.starts[r] + row.ends[i];
    row_splits[r + 1] = static_cast<int64_t>(step);
  }
}

}  // namespace

void write_ragged(const Plan& plan, size_t t, const unpack::Unpacker* cast, const BatchRows& batch,
                  std::span<const int64_t> failed, BatchBuffer& buffer) {
  const BatchTensor& tensor = plan.memory.tensors[t];
  const OutputSpec& output = plan.spec.outputs[static_cast<size_t>(tensor.output)];
  const auto number = static_cast<size_t>(output.feature);
  const FeatureSpec& feature = plan.spec.features[number];
  const Layout layout = lay_out(feature, number, output.padded, batch, failed);
  const auto memory = [&](size_t which) { return buffer.memory + plan.memory.tensors[which].offset; };
  const auto view = [&](size_t which) -> TensorView& { return buffer.content.tensors[which].tensor; };

  size_t next = t + 1;
  if (tensor.part == Part::bytes) {
    const auto* value = layout.values() == 1 ? static_cast<const BytesRef*>(layout.own[0].values) : nullptr;
    const bool lent = plan.memory.lends && value && buffer.lender->holds({value->data, value->size});
    buffer.content.tensors[t].lent = lent;
    view(t).data = lent ? const_cast<std::byte*>(value->data) : memory(t);
    check_room(plan.memory.tensors[next], layout.values() + 1, sizeof(int64_t));
    const int64_t bytes =
        write_bytes(feature, layout, reinterpret_cast<int64_t*>(memory(next)), tensor, lent ? nullptr : memory(t));
    view(t).shape = Shape{bytes};
    view(next++).shape = Shape{layout.values() + 1};
  } else {
    check_room(tensor, layout.values(), size_of(tensor.dtype));
    write_numbers(feature, layout, *cast, memory(t));
    view(t).shape = tensor.part == Part::padded ? tensor.shape.with_rows(layout.longest).with_rows(batch.rows)
                                                : Shape{layout.values()};
  }
  const auto splits = [&](size_t which, uint64_t count) {
    check_room(plan.memory.tensors[which], static_cast<int64_t>(count) + 1, sizeof(int64_t));
    view(which).shape = Shape{static_cast<int64_t>(count) + 1};
    return std::span(reinterpret_cast<int64_t*>(memory(which)), count + 1);
  };
  if (feature.nested()) {
    uint64_t steps = 0;
    for (const StepsRef& row : layout.steps) steps += row.steps;
    const std::span step_splits = splits(next, steps);
    write_splits(layout, step_splits, splits(next + 1, layout.steps.size()));
  } else if (output.variable) {
    std::ranges::copy(layout.starts, splits(next, layout.own.size()).begin());
  }
}

}  // namespace feedline::flow
