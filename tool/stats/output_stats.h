// Statistics of one output of a pipeline, collected batch by batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/rank_message.h"
#include "feedline/batch.h"
#include "feedline/element_spec.h"
#include "tool/stats/text_counts.h"
#include "tool/stats/value_stats.h"

namespace feedline::cli {

/// What is counted of an output.
struct OutputShape {
  /// How the values of a row of a dense output fall into parts that have statistics of their own: the channels of
  /// pictures, the columns of a stack. Every row has `parts` times the same number of values.
  int64_t parts = 1;
  bool parts_first = false;  // true: the values of a part lie together; false: the parts take turns
  bool frames = false;       // the first axis of a row is one of frames, and each of them is counted as a row
  int64_t step_values = 1;   // for ragged outputs: how many values make one step of the length
  /// Of a part of a row of floats, this many values at most are counted by value, at random places.
  size_t looked_at = 64;
};

/// The rows of a batch that count, and their numbers in the epoch.
struct CountedRows {
  std::span<const int64_t> rows;
  uint64_t first = 0;  // the number in the epoch of the batch's first row
};

/// The statistics of an output. Objects of the same output can be merged, whatever rows they were given. Not
/// thread-safe.
class OutputStats {
 public:
  OutputStats(ElementSpec element, const OutputShape& shape);

  /// Adds rows of a batch. With OutputShape::frames the rows are frames.
  void add(const Batch& batch, const CountedRows& counted);
  void merge(const OutputStats& other);

  const ElementSpec& element() const noexcept { return element_; }
  bool ragged() const noexcept { return element_.kind == ElementSpec::Kind::ragged; }
  bool is_bytes() const noexcept { return element_.dtype == DType::bytes; }
  uint64_t rows() const noexcept { return rows_; }
  // What follows is complete after settle().
  void settle();
  /// The numbers, by part. Empty for bytes.
  const std::vector<ValueStats>& parts() const noexcept { return parts_; }
  /// Ragged outputs: how many values, or steps, the rows have.
  const ValueStats& lengths() const noexcept { return lengths_; }
  /// Bytes: how long the strings are.
  const ValueStats& sizes() const noexcept { return sizes_; }
  const TextCounts& texts() const noexcept { return texts_; }

  void put(MessageWriter& message);
  void get(MessageReader& message);

 private:
  void add_dense(const TensorView& tensor, const CountedRows& counted);
  template <typename Element>
  void add_part(const Element* elements, int64_t row_values, size_t part, const CountedRows& counted, bool by_row);
  void add_ragged(const Batch& batch, const CountedRows& counted);
  void add_values(const TensorView& tensor, int64_t begin, int64_t end);
  void add_strings(const Batch& batch, const std::vector<std::string>& names, int64_t begin, int64_t end);

  ElementSpec element_;
  OutputShape shape_;
  uint64_t rows_ = 0;
  std::vector<ValueStats> parts_;
  ValueStats lengths_{DType::int64}, sizes_{DType::int64};
  TextCounts texts_;
  // Room for the values of one call, so that nothing is allocated for a batch.
  std::vector<double> floats_;
  std::vector<int64_t> integers_;
  std::vector<uint8_t> bytes_;
};

}  // namespace feedline::cli
