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

namespace feedline::tool {

/// The vectors of classes that a row has, one after another. The numbers nearer to `on` than to `off`, both cast to the
/// output's type, are at the places of classes. If `on` is then not above `off`, no class is found.
struct ClassVectors {
  int64_t classes = 1;
  double on = 1, off = 0;
};

/// Says how the values of an output are divided into rows, parts and steps, and which of them are counted.
struct OutputShape {
  /// The number of parts into which the values of a row of a dense output fall: the channels of pictures, the columns
  /// of a stack. Each part has its own statistics. All parts of a row have the same number of values.
  int64_t parts = 1;
  bool parts_first = false;  // true: the values of a part lie together; false: the parts take turns
  bool frames = false;       // a row is a window of frames along its first axis; each frame is counted as a row
  int64_t pictures = 1;      // how many pictures lie one after another in a row, or in a frame; each has all parts
  std::optional<ClassVectors> vectors = {};
  /// For ragged outputs that the given pipeline pads to whole steps: the shape of a step.
  std::optional<Shape> step = {};
  /// The maximum number of values that are counted by value in a part of a long row of floats. Their places are random.
  size_t looked_at = 64;
};

/// The rows of a batch that are to be counted, and their numbers in the epoch.
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
  /// Removes from `rows` those whose values are not a whole number of steps, so that the given pipeline refuses their
  /// records. Returns how many rows were removed.
  size_t remove_partial_steps(const Batch& batch, std::vector<int64_t>& rows) const;

  const ElementSpec& element() const noexcept { return element_; }
  /// Returns the shape of a row, of a step or of a value, as the given pipeline delivers it.
  const Shape& shape() const noexcept { return shape_.step ? *shape_.step : element_.shape; }
  bool ragged() const noexcept { return element_.kind == ElementSpec::Kind::ragged || nested(); }
  /// Returns whether step_lengths() are counted, because steps may have different numbers of values.
  bool has_step_lengths() const noexcept { return nested() && !shape_.step; }
  /// Returns whether a row, a frame or a value is a single number or string.
  bool scalar() const noexcept { return shape().elements() == (shape_.frames && !ragged() ? shape()[0] : 1); }
  bool is_bytes() const noexcept { return element_.dtype == DType::bytes; }
  uint64_t rows() const noexcept { return rows_; }
  // What follows is complete after settle().
  void settle();
  /// The numbers, by part. Empty for bytes.
  const std::vector<ValueStats>& parts() const noexcept { return parts_; }
  bool has_classes() const noexcept { return shape_.vectors.has_value(); }
  /// For class vectors: the classes in all rows.
  const ValueStats& classes() const noexcept { return classes_; }
  /// For ragged outputs: the numbers of steps in the rows or, if rows have no steps, the numbers of values.
  const ValueStats& lengths() const noexcept { return lengths_; }
  /// The numbers of values in the steps.
  const ValueStats& step_lengths() const noexcept { return step_lengths_; }
  /// For bytes: the lengths of the strings.
  const ValueStats& sizes() const noexcept { return sizes_; }
  const TextCounts& texts() const noexcept { return texts_; }

  void put(MessageWriter& message);
  void get(MessageReader& message);

 private:
  /// Returns whether a row is a list of steps, and each step is a list of values.
  bool nested() const noexcept { return element_.kind == ElementSpec::Kind::nested; }
  void add_pictures(const TensorView& tensor, const CountedRows& counted);
  void add_dense(const TensorView& tensor, const CountedRows& counted);
  template <typename Element>
  void add_classes(const Element* elements, int64_t row_values, std::span<const int64_t> rows);
  void add_bytes(const uint8_t* elements, size_t row_values, std::span<const int64_t> rows);
  template <typename Element>
  void add_part(const Element* elements, int64_t row_values, size_t part, std::span<const int64_t> rows);
  template <typename Element>
  void add_long_row(const Element* elements, size_t count, std::span<ValueStats> parts, uint64_t number);
  template <typename Float>
  void add_block(std::span<const Float> values, std::span<ValueStats> parts, size_t looked_at, uint64_t key);
  void add_ragged(const Batch& batch, const CountedRows& counted);
  void add_lengths(std::span<const int64_t> splits, int64_t values, ValueStats& lengths);
  void add_values(const TensorView& tensor, int64_t begin, int64_t end);
  void add_strings(const Batch& batch, const std::vector<std::string>& names, int64_t begin, int64_t end);

  ElementSpec element_;
  OutputShape shape_;
  uint64_t rows_ = 0;
  std::vector<ValueStats> parts_;
  ValueStats classes_{DType::int64}, lengths_{DType::int64}, step_lengths_{DType::int64}, sizes_{DType::int64};
  TextCounts texts_;
  // Room for the values of one call, so that nothing is allocated for a batch.
  std::vector<double> floats_, some_;
  std::vector<int64_t> integers_, pictures_;
};

}  // namespace feedline::tool
