// The writers of the outputs whose rows may fail to be made: pictures, rows of tables and one-hot vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "flowgraph/pipeline/spec.h"
#include "flowgraph/rows/row_writer.h"

namespace feedline::flow {

class RowWriters {
 public:
  /// `tables` are the open tables of spec.tables. Tables that no output looks up may be null or left out.
  RowWriters(const PipelineSpec& spec, const Tables& tables);

  /// Returns the writer of an output's rows, or of the steps of its rows if the output is padded. Returns null if no
  /// row of the output can fail.
  const RowWriter* of(size_t output) const noexcept { return writers_[output].get(); }
  const RowWriter* of(int output) const noexcept { return of(static_cast<size_t>(output)); }
  /// Returns how many bytes of scratch memory, and of the heap, each thread needs.
  uint64_t scratch_bytes() const noexcept { return scratch_bytes_; }
  uint64_t heap_bytes() const noexcept { return heap_bytes_; }

 private:
  std::vector<std::unique_ptr<const RowWriter>> writers_;  // by output
  uint64_t scratch_bytes_ = 0, heap_bytes_ = 0;
};

}  // namespace feedline::flow
