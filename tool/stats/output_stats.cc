#include "tool/stats/output_stats.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/draws.h"
#include "unpack/dispatch.h"

namespace feedline::tool {
namespace {

constexpr size_t block_values = 6144;  // of long rows: so many floats stay in the first-level cache; a multiple of 3
constexpr int64_t short_row = 64;      // if a part of a row has at most so many floats, all are counted by value

template <typename Element>
constexpr bool is_float = !std::is_integral_v<Element> && sizeof(Element) > 1;

/// Returns the number as it is given to ValueStats: an integer as int64, a float as double.
template <typename Element>
auto widened(const Element& element) noexcept {
  if constexpr (std::is_integral_v<Element>)
    return static_cast<int64_t>(element);
  else
    return unpack::cast<double>(element);
}

/// Calls f(first, last) for each run of rows that follow one another without a gap: the rows `first` to `last`.
template <typename F>
void for_each_run(std::span<const int64_t> rows, F&& f) {
  for (size_t i = 0; i < rows.size();) {
    const size_t begin = i++;
    while (i < rows.size() && rows[i] == rows[i - 1] + 1) i++;
    f(static_cast<size_t>(rows[begin]), static_cast<size_t>(rows[i - 1]));
  }
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
  if (!is_bytes()) return add_pictures(batch.at(names[0]), counted);
  const int64_t strings = element_.shape.elements();
  for (const int64_t row : counted.rows) add_strings(batch, names, row * strings, (row + 1) * strings);
}

// Adds the rows' pictures one by one, if there are several in a row.
void OutputStats::add_pictures(const TensorView& tensor, const CountedRows& counted) {
  if (shape_.pictures == 1) return add_dense(tensor, counted);
  pictures_.clear();
  for (const int64_t row : counted.rows)
    for (int64_t picture = 0; picture < shape_.pictures; picture++)
      pictures_.push_back(row * shape_.pictures + picture);
  add_dense(tensor, {.rows = pictures_, .first = counted.first * static_cast<uint64_t>(shape_.pictures)});
}

void OutputStats::add_dense(const TensorView& tensor, const CountedRows& counted) {
  const int64_t rows = (shape_.frames ? tensor.shape[0] * tensor.shape[1] : tensor.shape[0]) * shape_.pictures;
  const int64_t row_values = tensor.shape.elements() / rows;
  if (row_values == 0) return;
  unpack::with_type(tensor.dtype, [&](auto type) {
    using Element = typename decltype(type)::t;
    const auto* elements = static_cast<const Element*>(tensor.data);
    if (shape_.vectors) add_classes(elements, row_values, counted.rows);
    const auto part_values = static_cast<size_t>(row_values / shape_.parts);
    if constexpr (sizeof(Element) == 1) {
      add_bytes(reinterpret_cast<const uint8_t*>(elements), static_cast<size_t>(row_values), counted.rows);
    } else if (is_float<Element> && part_values > short_row) {
      for (const int64_t row : counted.rows) {
        const Element* const of_row = elements + row * row_values;
        const uint64_t number = counted.first + static_cast<uint64_t>(row);
        if (!shape_.parts_first)
          add_long_row(of_row, static_cast<size_t>(row_values), parts_, number);
        else
          for (size_t part = 0; part < parts_.size(); part++)
            add_long_row(of_row + part * part_values, part_values, std::span(&parts_[part], 1), number);
      }
    } else {
      for (size_t part = 0; part < parts_.size(); part++) add_part(elements, row_values, part, counted.rows);
    }
  });
}

template <typename Element>
void OutputStats::add_classes(const Element* elements, int64_t row_values, std::span<const int64_t> rows) {
  const int64_t classes = shape_.vectors->classes;
  const auto delivered = [](double value) { return unpack::cast<double>(unpack::cast<Element>(value)); };
  const double on = delivered(shape_.vectors->on), off = delivered(shape_.vectors->off), border = (on + off) / 2;
  if (!(on > off)) return;
  const auto add = [&] {
    classes_.add(std::span<const int64_t>(integers_));
    integers_.clear();
  };
  integers_.clear();
  for (const int64_t row : rows) {
    const Element* const of_row = elements + row * row_values;
    for (int64_t i = 0; i < row_values; i++) {
      if (!(static_cast<double>(widened(of_row[i])) > border)) continue;
      integers_.push_back(i % classes);
      if (integers_.size() == block_values) add();
    }
  }
  add();
}

void OutputStats::add_bytes(const uint8_t* elements, size_t row_values, std::span<const int64_t> rows) {
  for_each_run(rows, [&](size_t first, size_t last) {
    if (!shape_.parts_first || parts_.size() == 1)
      return ValueStats::add({elements + first * row_values, (last - first + 1) * row_values}, parts_);
    const size_t values = row_values / parts_.size();
    for (size_t row = first; row <= last; row++)
      for (size_t part = 0; part < parts_.size(); part++)
        ValueStats::add({elements + row * row_values + part * values, values}, std::span(&parts_[part], 1));
  });
}

// Adds the values that one part has in the rows. All of them are counted by value.
template <typename Element>
void OutputStats::add_part(const Element* elements, int64_t row_values, size_t part, std::span<const int64_t> rows) {
  using Wide = decltype(widened(*elements));
  const int64_t values = row_values / shape_.parts, number = static_cast<int64_t>(part);
  const int64_t begin = shape_.parts_first ? number * values : number;
  const int64_t step = shape_.parts_first ? 1 : shape_.parts;
  auto& wide = [&]() -> auto& {
    if constexpr (std::is_same_v<Wide, double>)
      return floats_;
    else
      return integers_;
  }
  ();
  const auto add = [&](const Element* from, size_t count) {
    for (size_t first = 0; first < count; first += block_values, from += static_cast<int64_t>(block_values) * step) {
      const size_t in_block = std::min(block_values, count - first);
      if (wide.size() < in_block) wide.resize(in_block);
      for (size_t i = 0; i < in_block; i++) wide[i] = widened(from[static_cast<int64_t>(i) * step]);
      parts_[part].add(std::span<const Wide>(wide).first(in_block));
    }
  };
  for_each_run(rows, [&](size_t first, size_t last) {
    const Element* const of_run = elements + static_cast<int64_t>(first) * row_values + begin;
    const size_t run = last - first + 1, of_row = static_cast<size_t>(values);
    // If parts take turns, or if there is only one, its values lie in equal distances in the whole run.
    if (!shape_.parts_first || shape_.parts == 1) return add(of_run, run * of_row);
    for (size_t row = 0; row < run; row++) add(of_run + static_cast<int64_t>(row) * row_values, of_row);
  });
}

// Adds a row of floats, or the floats of one part of a row, in blocks that do not depend on the batch. Several parts
// take turns. Not all floats are counted by value; the row's number decides which.
template <typename Element>
void OutputStats::add_long_row(const Element* elements, size_t count, std::span<ValueStats> parts, uint64_t number) {
  for (size_t first = 0; first < count; first += block_values) {
    const std::span block(elements + first, std::min(block_values, count - first));
    const size_t share = std::max<size_t>(1, shape_.looked_at * block.size() / count);
    const uint64_t key = key_of({number, first});
    if constexpr (std::is_same_v<Element, float> || std::is_same_v<Element, double>) {
      add_block(block, parts, share, key);
    } else {
      floats_.resize(block.size());
      std::ranges::transform(block, floats_.begin(), widened<Element>);
      add_block(std::span<const double>(floats_), parts, share, key);
    }
  }
}

template <typename Float>
void OutputStats::add_block(std::span<const Float> values, std::span<ValueStats> parts, size_t looked_at,
                            uint64_t key) {
  std::array<Moments, 3> moments;
  const bool summed = Moments::add_row(values, std::span(moments).first(parts.size()));
  const size_t groups = values.size() / parts.size();
  const auto collect = [&](size_t part, size_t count, auto&& place) {
    some_.clear();
    for (size_t i = 0; i < count; i++) some_.push_back(static_cast<double>(values[place(i) * parts.size() + part]));
    return std::span<const double>(some_);
  };
  for (size_t part = 0; part < parts.size(); part++) {
    const auto in_order = [](size_t i) { return i; };
    if (summed)
      parts[part].add(moments[part]);
    else
      parts[part].add_uncounted(collect(part, groups, in_order));
    Draws draws(key);
    const auto at_random = [&](size_t) { return draws.below(static_cast<uint32_t>(groups)); };
    parts[part].count(looked_at < groups ? collect(part, looked_at, at_random) : collect(part, groups, in_order));
  }
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

// Adds the length of each row: the distance of two neighbouring splits, divided by `values`.
void OutputStats::add_lengths(std::span<const int64_t> splits, int64_t values, ValueStats& lengths) {
  integers_.clear();
  for (size_t i = 1; i < splits.size(); i++) integers_.push_back((splits[i] - splits[i - 1]) / values);
  lengths.add(std::span<const int64_t>(integers_));
}

void OutputStats::add_ragged(const Batch& batch, const CountedRows& counted) {
  const std::vector<std::string> names = element_.tensors();
  const auto rows = batch.at(names.back()).as<const int64_t>();
  // The values of neighbouring rows lie side by side, so each run of such rows is counted in one call.
  for_each_run(counted.rows, [&](size_t first, size_t last) {
    const auto run = rows.subspan(first, last - first + 2);
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
  });
}

void OutputStats::add_values(const TensorView& tensor, int64_t begin, int64_t end) {
  const int64_t value_size = tensor.shape[0] > 0 ? tensor.shape.elements() / tensor.shape[0] : 1;
  constexpr int64_t one_row = 0;
  unpack::with_type(tensor.dtype, [&](auto type) {
    using Element = typename decltype(type)::t;
    const auto* elements = static_cast<const Element*>(tensor.data) + begin * value_size;
    const int64_t values = (end - begin) * value_size;
    if constexpr (sizeof(Element) == 1)
      add_bytes(reinterpret_cast<const uint8_t*>(elements), static_cast<size_t>(values), {&one_row, 1});
    else
      add_part(elements, values, 0, {&one_row, 1});
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
  classes_.merge(other.classes_);
  lengths_.merge(other.lengths_);
  step_lengths_.merge(other.step_lengths_);
  sizes_.merge(other.sizes_);
  texts_.merge(other.texts_);
}

void OutputStats::put(MessageWriter& message) {
  message.put(rows_);
  for (ValueStats& part : parts_) part.put(message);
  classes_.put(message);
  lengths_.put(message);
  step_lengths_.put(message);
  sizes_.put(message);
  texts_.put(message);
}

void OutputStats::get(MessageReader& message) {
  rows_ = message.get<uint64_t>();
  for (ValueStats& part : parts_) part.get(message);
  classes_.get(message);
  lengths_.get(message);
  step_lengths_.get(message);
  sizes_.get(message);
  texts_.get(message);
}

}  // namespace feedline::tool
