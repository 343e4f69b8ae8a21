// Writes the outputs of an epoch, batch after batch, as .npy files.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "feedline/batch.h"
#include "feedline/element_spec.h"
#include "tool/feeding/npy_writer.h"

namespace feedline::tool {

/// Returns the file name for an output's name: '/', '%', control characters and a leading '.' become %XX.
std::string file_name(std::string_view output);

/// Writes one output. A dense output is NAME.npy. A variable one is NAME.values.npy and NAME.row_splits.npy. Bytes are
/// NAME.bytes.npy and NAME.offsets.npy, with NAME.row_splits.npy if a record may have several values. If steps may have
/// different numbers of values, there is NAME.step_splits.npy, too. Filler rows, which stand in for missing records,
/// are left out. Throws Error io_error.
class OutputFiles {
 public:
  OutputFiles(const std::string& folder, const ElementSpec& element);

  void append(const Batch& batch);
  /// Makes the complete files appear under their names.
  void close();
  /// Returns the names of the files, without their folder.
  std::vector<std::string> names() const;

 private:
  struct Range {
    int64_t begin = 0, end = 0;
  };
  struct Piece {
    int64_t rows = 0, width = 0;  // width: the number of values in a row
  };

  /// Opens the file of the next tensor, tensors_[files_.size()].
  NpyWriter& open(DType dtype, const Shape& row_shape);
  /// Returns the longest ranges of consecutive rows that have a record, in ascending order.
  static std::vector<Range> valid_rows(const Batch& batch);
  /// Returns the number of values in the batch, with padding.
  int64_t values_in(const Batch& batch) const;
  void append_rows(const TensorView& tensor, Range rows);
  /// Appends the splits of `rows`, which say where each row's values end, to the file of tensors_[tensor]. `total` is
  /// the number of values in all rows that were appended before; the call adds the number of values in `rows`. Returns
  /// the range of these values in the batch. If rows have steps, two calls are needed. The first call takes the tensor
  /// that divides steps among rows, so its values are steps. The second call takes the tensor that divides values among
  /// steps, so its `rows` are these steps.
  Range append_splits(const Batch& batch, size_t tensor, Range rows, int64_t& total);
  void append_bytes(const Batch& batch, Range values);
  /// Writes all rows again with `width` values each, and fills short rows with padding: pad_to() writes numbers,
  /// pad_bytes_to() writes bytes.
  void pad_to(int64_t width);
  void pad_bytes_to(int64_t width);

  const std::string folder_;
  const std::vector<std::string> tensors_;  // names in a batch; files_[i] holds tensors_[i]
  std::vector<std::unique_ptr<NpyWriter>> files_;
  bool has_offsets_ = false, has_splits_ = false;
  bool nested_ = false;                         // rows have steps: the last tensor but one is NAME.step_splits
  int64_t values_of_row_ = 1;                   // for bytes without row_splits: the number of values in a row
  int64_t values_ = 0, steps_ = 0, bytes_ = 0;  // totals of the rows written so far

  // A padded output, [samples, steps, shape...], is as wide in each batch as the longest row of the batch. So its rows
  // are first written in pieces, which are consecutive rows of one batch. If the widths of the pieces differ, close()
  // writes all rows again with one width.
  bool padded_ = false;
  Shape step_shape_;
  std::vector<std::byte> padding_;  // what fills short rows: the bytes of one number, or one value of bytes
  std::vector<Piece> pieces_;
};

}  // namespace feedline::tool
