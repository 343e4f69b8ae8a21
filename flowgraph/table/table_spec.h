// Describes a table (an .npy file in which rows are looked up) as far as it is known before it is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "feedline/tensor.h"

namespace feedline::flow {

struct TableSpec {
  // Set from the pipeline.
  std::string path;       // the name of the .npy file (io::absolute_name); empty: a vocabulary, which has only names
  std::string keys_path;  // the name of the file of names; empty: rows have only numbers
  bool resident = false;
  bool on_device = false;     // the rows are in the memory of each device that has a replica
  bool number_names = false;  // each name is the decimal text of an INT64

  // Set by the constructor of Table from the header of the .npy file. A vocabulary has only `rows`, the number of its
  // names, which Table::open() sets.
  DType dtype = DType::unset;  // unset: the header has not been read
  Shape row_shape = {};
  uint64_t rows = 0;

  bool operator==(const TableSpec&) const = default;
  bool is_vocabulary() const noexcept { return path.empty(); }
  /// Returns the name of the .npy file, or of a vocabulary's file of names, without its folder.
  std::string name() const;
  size_t row_bytes() const noexcept { return static_cast<size_t>(row_shape.elements()) * size_of(dtype); }
  /// Returns how many bytes an on_device table takes on each GPU.
  uint64_t device_bytes() const noexcept { return (1 + rows) * row_bytes(); }
};

}  // namespace feedline::flow
