// NumPy's .npy files, written as the data comes (numpy/lib/format.py, version 1.0 of the format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "feedline/tensor.h"
#include "io/output_file.h"

namespace feedline::cli {

/// An array [rows, row_shape...] whose number of rows shows when it is finished. The file appears whole, by close(), or
/// not at all (io/output_file.h). Every member throws Error io_error, naming the file, when the system refuses. Not
/// thread-safe.
class NpyWriter {
 public:
  /// NumPy has no bfloat16: its bits are stored as uint16.
  NpyWriter(std::string path, DType dtype, Shape row_shape);

  /// Whole rows, row-major.
  void append(int64_t rows, std::span<const std::byte> elements);
  /// For who learns it only from the data.
  void set_row_shape(const Shape& row_shape) { row_shape_ = row_shape; }
  /// Bytes of elements again, from `begin` on.
  void read_back(uint64_t begin, std::span<std::byte> out);
  void close();

  const std::string& path() const noexcept { return file_.path(); }
  DType dtype() const noexcept { return dtype_; }
  int64_t rows() const noexcept { return rows_; }

 private:
  void flush();

  io::OutputFile file_;
  const DType dtype_;
  Shape row_shape_;
  int64_t rows_ = 0;
  uint64_t written_ = 0;           // bytes of elements in the file
  std::vector<std::byte> buffer_;  // and behind them
};

}  // namespace feedline::cli
