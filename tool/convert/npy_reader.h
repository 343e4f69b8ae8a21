// Reads NumPy's .npy files row by row (numpy/lib/format.py, versions 1.0 to 3.0 of the format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"

namespace feedline::cli {

/// An array with at least one axis, in C order, whose elements have a fixed size. Not thread-safe.
class NpyReader {
 public:
  /// Opens the file and reads its header of at most 64 KiB. Throws Error io_error if the file cannot be read. Throws
  /// Error bad_pipeline if it is not a valid .npy file, or has another size than its header says.
  explicit NpyReader(std::string path);

  const std::string& path() const noexcept { return file_.path(); }
  /// Returns the type as NumPy writes it: byte order ('<' little, '>' big, '|' none), kind, and bytes, for example
  /// "<f4".
  const std::string& descr() const noexcept { return descr_; }
  char byte_order() const noexcept { return descr_[0]; }
  std::string type() const { return descr_.substr(1); }
  uint64_t element_bytes() const noexcept { return element_bytes_; }
  uint64_t rows() const noexcept { return rows_; }
  const std::vector<int64_t>& row_shape() const noexcept { return row_shape_; }
  uint64_t row_bytes() const noexcept { return row_elements_ * element_bytes_; }

  /// Returns the next row, which is valid until the next call. Precondition: fewer than rows() calls so far.
  std::span<const std::byte> next();

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  void parse(std::string_view header);

  io::InputFile file_;
  std::string descr_;
  uint64_t element_bytes_ = 0, rows_ = 0, row_elements_ = 1;
  std::vector<int64_t> row_shape_;
  uint64_t position_ = 0;  // the file offset after the bytes in the buffer
  std::vector<std::byte> buffer_;
  size_t taken_ = 0;  // bytes of the buffer that next() has returned
};

}  // namespace feedline::cli
