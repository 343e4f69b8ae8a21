// Describes what a pipeline delivers. This is known before the first batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "feedline/export.h"
#include "feedline/tensor.h"

namespace feedline {

/// One output of a pipeline, as it is in every batch.
struct FEEDLINE_PUBLIC ElementSpec {
  enum class Kind : uint8_t {
    dense,   // NAME: [rows, shape...]
    padded,  // NAME: [rows, longest of the batch, shape...]; shorter rows end with `padding`
    ragged,  // NAME.values: [values of all rows, shape...], and NAME.row_splits: int64 [rows + 1]
    nested,  // NAME.values: [values of all steps], NAME.step_splits: int64 [steps + 1], and NAME.row_splits: int64
             // [rows + 1]
  };

  std::string name;
  Kind kind = Kind::dense;
  /// The type of the numbers. If it is `bytes`, the output has two tensors in place of NAME or NAME.values. NAME.bytes,
  /// uint8, holds the strings one after another. NAME.offsets, int64, holds the offset in NAME.bytes at which each
  /// string begins, and as its last element the offset at which the last string ends.
  DType dtype = DType::unset;
  /// The shape of a row of a dense output, of a step of a padded output, or of a value of any other output. With
  /// windows the first axis of a dense output's row has the frames of the window.
  Shape shape = {};
  /// The bytes of one padding value of a padded output: one number, or one string.
  std::vector<std::byte> padding = {};

  /// Returns the names of the output's tensors in a batch, such as "tags.values" and "tags.row_splits".
  std::vector<std::string> tensors() const;
};

}  // namespace feedline
