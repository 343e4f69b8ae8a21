// Evaluates the formulas of a pipeline over the columns of a chunk, and computes addresses of rows of columns.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "flowgraph/parse/columns.h"
#include "flowgraph/pipeline/spec.h"
#include "unpack/unpack.h"

namespace feedline::flow {

/// Computes the address of a row of a column. The rows lie side by side, `stride` bytes apart. If `indirect`, BytesRefs
/// that point to the rows lie there instead.
struct RowAccess {
  size_t stride = 0;
  bool indirect = false;

  const std::byte* operator()(const Column& column, uint64_t row) const noexcept {
    const std::byte* at = column.as<std::byte>() + row * stride;
    return indirect ? reinterpret_cast<const BytesRef*>(at)->data : at;
  }
};

/// Returns how to reach the rows of a fixed feature. A bytes feature with several values has `elements` consecutive
/// rows for each record.
RowAccess rows_of(const FeatureSpec& feature) noexcept;

/// Returns a record's values as they are stored: the bytes of the only value of a fixed feature of BYTES, or all
/// numbers of a feature of numbers.
std::span<const std::byte> stored_value(const FeatureSpec& feature, const Column& column, uint32_t row) noexcept;

/// Returns a value of a fixed feature as it is stored: the bytes of a BYTES value, or a number. `at` is its number in
/// the column, where each record has as many values as the feature's shape has elements.
inline std::span<const std::byte> value_at(DType dtype, const Column& column, uint64_t at) noexcept {
  if (dtype == DType::bytes) {
    const BytesRef& bytes = column.as<BytesRef>()[at];
    return {bytes.data, bytes.size};
  }
  const size_t size = size_of(dtype);
  return {column.as<std::byte>() + at * size, size};
}

/// Returns a record's values of a feature that is of BYTES or not fixed. If rows have steps, returns the values of all
/// steps.
ValuesRef values_of(const FeatureSpec& feature, const Column& column, uint32_t row) noexcept;

inline constexpr RowAccess rows_of_expression = {8, false};

/// The error message for a record from which a formula cannot be computed.
inline constexpr const char* formula_failure =
    "the formula overflows int64 with the values of this record, or computes mod by 0; write the numbers of the "
    "formula with a decimal point to compute in float64";

/// The formulas of a pipeline, prepared for evaluation. Immutable.
class Formulas {
 public:
  static constexpr uint32_t block = 256;  // rows evaluated at a time

  explicit Formulas(const PipelineSpec& spec);

  /// Returns how many arena bytes evaluate() takes for `rows` rows.
  uint64_t arena_bound(uint64_t rows) const noexcept;

  /// Fills one column for each formula, of int64_t or double as the formula's type says. Calls on_failure(row,
  /// expression) if an integer overflows or mod is taken by 0.
  template <typename OnFailure>
  void evaluate(std::span<const Column> features, uint32_t rows, Arena& arena, std::vector<Column>& columns,
                OnFailure&& on_failure) const;

 private:
  struct Input {
    ExpressionSpec::Input from;
    std::optional<unpack::Unpacker> round;  // casts to the dtype of the output that the formula reads
    std::optional<unpack::Unpacker> widen;  // casts to float64 or int64, in which the program computes
  };
  struct Formula {
    const Program* program;
    std::vector<Input> inputs;
  };
  /// Copies rows [first, first + count) of an input into `values`, converted for the program. `scratch` must have room
  /// for `count` values.
  void load(const Input& input, std::span<const Column> features, std::span<const Column> columns, uint32_t first,
            uint32_t count, std::byte* scratch, std::byte* values) const;

  const PipelineSpec* spec_;
  std::vector<Formula> formulas_;
  size_t most_inputs_ = 0;
};

template <typename OnFailure>
void Formulas::evaluate(std::span<const Column> features, uint32_t rows, Arena& arena, std::vector<Column>& columns,
                        OnFailure&& on_failure) const {
  columns.clear();
  if (formulas_.empty()) return;
  constexpr size_t block_bytes = block * sizeof(double);
  auto* values = arena.take<double>((most_inputs_ + 1) * block);
  auto* bytes = reinterpret_cast<std::byte*>(values);
  std::vector<Program::Column> inputs(most_inputs_);
  for (size_t f = 0; f < formulas_.size(); f++) {
    const Formula& formula = formulas_[f];
    auto* out = arena.take<double>(rows);
    // Evaluates the formula for one block of rows after another.
    // Bound may be equal: no test can notice, because a block of no rows does nothing.
    for (uint32_t first = 0; first < rows; first += block) {
      const uint32_t count = std::min(block, rows - first);
      for (size_t i = 0; i < formula.inputs.size(); i++) {
        std::byte* into = bytes + (i + 1) * block_bytes;
        load(formula.inputs[i], features, columns, first, count, bytes, into);
        inputs[i] = {into};
      }
      // After a row that failed, evaluates the rows that follow it.
      // Bound may be equal: no test can notice, because evaluating 0 rows does not fail.
      for (uint32_t done = 0; done < count;) {
        const uint32_t failed =
            formula.program->evaluate(std::span(inputs).first(formula.inputs.size()), count - done, out + first + done);
        if (failed == Program::no_failure) break;
        on_failure(first + done + failed, f);
        for (Program::Column& input : inputs) input.values = static_cast<const double*>(input.values) + failed + 1;
        done += failed + 1;
      }
    }
    columns.push_back({out});
  }
}

}  // namespace feedline::flow
