// Reads NumPy's .npy files row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/npy_header.h"

namespace feedline::tool {

/// An array with at least one axis, in C order, whose elements have a fixed size. Not thread-safe.
class NpyReader {
 public:
  /// Opens the file and reads its header (io/npy_header.h). Throws Error as io::read_npy_header() does.
  explicit NpyReader(std::string path);

  const std::string& path() const noexcept { return file_.path(); }
  /// Returns the type as NumPy writes it: byte order ('<' little, '>' big, '|' none), kind, and bytes, for example
  /// "<f4".
  const std::string& descr() const noexcept { return header_.descr; }
  char byte_order() const noexcept { return header_.descr[0]; }
  std::string type() const { return header_.descr.substr(1); }
  uint64_t element_bytes() const noexcept { return header_.element_bytes; }
  uint64_t rows() const noexcept { return header_.rows; }
  const std::vector<int64_t>& row_shape() const noexcept { return header_.row_shape; }
  uint64_t row_bytes() const noexcept { return header_.row_bytes; }

  /// Returns the next row, which is valid until the next call. Precondition: fewer than rows() calls so far.
  std::span<const std::byte> next();
  /// Throws Error io_error if the file has been written to since it was opened.
  void check_unchanged() const { file_.check_unchanged(); }

 private:
  io::InputFile file_;
  io::NpyHeader header_;
  uint64_t position_;  // the file offset after the bytes in the buffer
  std::vector<std::byte> buffer_;
  size_t taken_ = 0;  // bytes of the buffer that next() has returned
};

}  // namespace feedline::tool
