// Writes NumPy's .npy files while the data arrives (numpy/lib/format.py, version 1.0 of the format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "feedline/tensor.h"
#include "io/output_file.h"

namespace feedline::tool {

/// Writes an array [rows, row_shape...] whose number of rows is known only at the end. close() makes the complete file
/// appear under its name; without close() there is no file (io/output_file.h). Every member throws Error io_error, with
/// the file as its place, if a system call fails. Not thread-safe.
class NpyWriter {
 public:
  /// NumPy has no bfloat16, so its bits are stored as uint16.
  NpyWriter(std::string path, DType dtype, Shape row_shape);

  /// Appends whole rows, in row-major order.
  void append(int64_t rows, std::span<const std::byte> elements);
  /// Sets the shape of a row, for callers that learn it only from the data.
  void set_row_shape(const Shape& row_shape) { row_shape_ = row_shape; }
  /// Fills `out` with bytes of the appended elements, from byte `begin` on.
  void read_back(uint64_t begin, std::span<std::byte> out);
  void close();

  const std::string& path() const noexcept { return file_.path(); }
  DType dtype() const noexcept { return dtype_; }

 private:
  void flush();

  io::OutputFile file_;
  const DType dtype_;
  Shape row_shape_;
  int64_t rows_ = 0;
  uint64_t written_ = 0;           // bytes of elements in the file
  std::vector<std::byte> buffer_;  // elements that are not yet in the file
};

}  // namespace feedline::tool
