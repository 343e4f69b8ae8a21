// The header of NumPy's .npy files (numpy/lib/format.py, versions 1.0 to 3.0 of the format).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"

namespace feedline::io {

/// An array with at least one axis, in C order, whose elements have a fixed size. A row is the part of the array
/// that one index of the first axis selects.
struct NpyHeader {
  /// The type of the elements as NumPy writes it: byte order ('<' little, '>' big, '|' if it does not matter), kind,
  /// and size in bytes. An example is "<f4".
  std::string descr;
  uint64_t element_bytes = 0, rows = 0, row_bytes = 0;
  std::vector<int64_t> row_shape;
  uint64_t elements_at = 0;  // the offset of the first element in the file
};

/// Reads the header, which may have at most 64 KiB. Throws Error io_error if the file cannot be read. Throws Error
/// bad_pipeline if the file is not a valid .npy file of an array as NpyHeader describes it, if its size differs from
/// the size that its header states, or if a row has no elements or more than `most_row_bytes` bytes.
NpyHeader read_npy_header(const SourceFile& file, uint64_t most_row_bytes);

}  // namespace feedline::io
