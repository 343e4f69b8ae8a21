#include "tool/stats/output_stats.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/draws.h"
#include "gpu/unpack/dispatch.h"

namespace feedline::cli {
namespace {

using Form = ValueStats::Form;

constexpr int64_t block_values = 4096;  // of long rows: so many doubles stay in the first-level cache

/// Returns the number as it is given to ValueStats: a byte as it is, an integer as int64, a float as double.
template <typename Element>
auto widened(const Element& element) noexcept {
  if constexpr (sizeof(Element) == 1)
    return std::bit_cast<uint8_t>(element);
  else if constexpr (std::is_integral_v<Element>)
    return static_cast<int64_t>(element);
  else
    return gpu::cast<double>(element);
}

}  // namespace

OutputStats::OutputStats(ElementSpec element, const OutputShape& shape) : element_(std::move(element)), shape_(shape) {
  if (!is_bytes()) parts_.assign(static_cast<size_t>(shape.parts), ValueStats(element_.dtype));
}

void OutputStats::add(const Batch& batch, const CountedRows& counted) {
  if (counted.rows.empty()) return;
  rows_ += counted.rows.size();
  if (ragged()) return add_ragged(batch, counted);
  const std::vector<std::string> names = element_.tensors();
  if (!is_bytes()) return add_dense(batch.at(names[0]), counted);
  const int64_t strings = element_.shape.elements();
  for (const int64_t row : counted.rows) add_strings(batch, names, row * strings, (row + 1) * strings);
}

void OutputStats::add_dense(const TensorView& tensor, const CountedRows& counted) {
  const int64_t rows = shape_.frames ? tensor.shape[0] * tensor.shape[1] : tensor.shape[0];
  const int64_t row_values = tensor.shape.elements() / rows;
  if (row_values == 0) return;
  gpu::with_type(tensor.dtype, [&](auto type) {
    const auto* elements = static_cast<const typename decltype(type)::t*>(tensor.data);
    const bool wide = static_cast<size_t>(row_values / shape_.parts) > shape_.looked_at;
    for (size_t part = 0; part < parts_.size(); part++) add_part(elements, row_values, part, counted, wide);
  });
}

// Adds the values that one part has in the rows. `by_row`: floats go row by row, in blocks that do not depend on the
// batch, and not all of them are counted by value. All other values go together.
template <typename Element>
void OutputStats::add_part(const Element* elements, int64_t row_values, size_t part, const CountedRows& counted,
                           bool by_row) {
  using Wide = decltype(widened(*elements));
  const int64_t values = row_values / shape_.parts, number = static_cast<int64_t>(part);
  const int64_t begin = shape_.parts_first ? number * values : number;
  const int64_t step = shape_.parts_first ? 1 : shape_.parts;
  auto& wide = [&]() -> auto& {
    if constexpr (std::is_same_v<Wide, double>)
      return floats_;
    else if constexpr (std::is_same_v<Wide, int64_t>)
      return integers_;
    else
      return bytes_;
  }
  ();
  wide.clear();
  for (const int64_t row : counted.rows) {
    const Element* const of_row = elements + row * row_values + begin;
    for (int64_t first = 0; first < values; first += block_values) {
      const int64_t last = std::min(values, first + block_values);
      const size_t before = wide.size();
      wide.resize(before + static_cast<size_t>(last - first));
      Wide* to = wide.data() + before;
      for (int64_t i = first; i < last; i++) *to++ = widened(of_row[i * step]);
      if constexpr (std::is_same_v<Wide, double>) {
        if (!by_row) continue;
        const uint64_t key = key_of({counted.first + static_cast<uint64_t>(row), part, static_cast<uint64_t>(first)});
        const auto share = static_cast<int64_t>(shape_.looked_at) * (last - first) / values;
        parts_[part].add_row(wide, static_cast<size_t>(std::max<int64_t>(1, share)), key);
        wide.clear();
      }
    }
    if (wide.size() < static_cast<size_t>(block_values)) continue;
    parts_[part].add(std::span<const Wide>(wide));
    wide.clear();
  }
  parts_[part].add(std::span<const Wide>(wide));
}

size_t OutputStats::remove_partial_steps(const Batch& batch, std::vector<int64_t>& rows) const {
  if (!shape_.step) return 0;
  const int64_t values = shape_.step->elements();
  const std::vector<std::string> names = element_.tensors();
  const auto splits = batch.at(names.back()).as<const int64_t>();
  const auto is_partial = [&](int64_t row) {
    const auto begin = static_cast<size_t>(splits[static_cast<size_t>(row)]);
    const auto end = static_cast<size_t>(splits[static_cast<size_t>(row) + 1]);
    if (!nested()) return (end - begin) % static_cast<size_t>(values) != 0;
    const auto steps = batch.at(names[names.size() - 2]).as<const int64_t>();
    for (size_t step = begin; step < end; step++)
      if (steps[step + 1] - steps[step] != values) return true;
    return false;
  };
  return std::erase_if(rows, is_partial);
}

// Adds the distances of neighbouring splits, in units of `values`.
void OutputStats::add_lengths(std::span<const int64_t> splits, int64_t values, ValueStats& lengths) {
  integers_.clear();
  for (size_t i = 1; i < splits.size(); i++) integers_.push_back((splits[i] - splits[i - 1]) / values);
  lengths.add(std::span<const int64_t>(integers_));
}

void OutputStats::add_ragged(const Batch& batch, const CountedRows& counted) {
  const std::vector<std::string> names = element_.tensors();
  const auto rows = batch.at(names.back()).as<const int64_t>();
  // Runs of neighbouring rows have their values side by side.
  for (size_t i = 0; i < counted.rows.size();) {
    const size_t begin = i++;
    while (i < counted.rows.size() && counted.rows[i] == counted.rows[i - 1] + 1) i++;
    const auto run = rows.subspan(static_cast<size_t>(counted.rows[begin]), i - begin + 1);
    add_lengths(run, shape_.step && !nested() ? shape_.step->elements() : 1, lengths_);
    int64_t from = run.front(), to = run.back();
    if (nested()) {
      const auto steps = batch.at(names[names.size() - 2]).as<const int64_t>();
      const auto of_run = steps.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from) + 1);
      if (has_step_lengths()) add_lengths(of_run, 1, step_lengths_);
      from = of_run.front();
      to = of_run.back();
    }
    if (is_bytes())
      add_strings(batch, names, from, to);
    else
      add_values(batch.at(names[0]), from, to);
  }
}

void OutputStats::add_values(const TensorView& tensor, int64_t begin, int64_t end) {
  const int64_t value_size = tensor.shape[0] > 0 ? tensor.shape.elements() / tensor.shape[0] : 1;
  constexpr int64_t one_row = 0;
  gpu::with_type(tensor.dtype, [&](auto type) {
    const auto* elements = static_cast<const typename decltype(type)::t*>(tensor.data) + begin * value_size;
    add_part(elements, (end - begin) * value_size, 0, {.rows = {&one_row, 1}, .first = 0}, false);
  });
}

void OutputStats::add_strings(const Batch& batch, const std::vector<std::string>& names, int64_t begin, int64_t end) {
  const auto bytes = batch.at(names[0]).as<const char>();
  const auto offsets = batch.at(names[1]).as<const int64_t>();
  integers_.clear();
  for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); i++) {
    const auto size = static_cast<size_t>(offsets[i + 1] - offsets[i]);
    integers_.push_back(static_cast<int64_t>(size));
    texts_.add({bytes.data() + offsets[i], size});
  }
  sizes_.add(std::span<const int64_t>(integers_));
}

void OutputStats::settle() {
  for (ValueStats& part : parts_) part.settle();
}

void OutputStats::merge(const OutputStats& other) {
  rows_ += other.rows_;
  for (size_t part = 0; part < parts_.size(); part++) parts_[part].merge(other.parts_[part]);
  lengths_.merge(other.lengths_);
  step_lengths_.merge(other.step_lengths_);
  sizes_.merge(other.sizes_);
  texts_.merge(other.texts_);
}

void OutputStats::put(MessageWriter& message) {
  message.put(rows_);
  for (ValueStats& part : parts_) part.put(message);
  lengths_.put(message);
  step_lengths_.put(message);
  sizes_.put(message);
  texts_.put(message);
}

void OutputStats::get(MessageReader& message) {
  rows_ = message.get<uint64_t>();
  for (ValueStats& part : parts_) part.get(message);
  lengths_.get(message);
  step_lengths_.get(message);
  sizes_.get(message);
  texts_.get(message);
}

}  // namespace feedline::cli
