// Describes how row-major tensors lie in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "feedline/tensor.h"
#include "unpack/unpack_spec.h"

namespace feedline::flow {

/// Returns the strides, in bits, of a row-major tensor whose elements are `bits` apart.
inline std::vector<int64_t> row_major(const Shape& shape, int64_t bits) {
  std::vector<int64_t> strides(shape.rank());
  for (size_t axis = shape.rank(); axis-- > 0; bits *= shape[axis]) strides[axis] = bits;
  return strides;
}

/// Returns the UnpackSpec of a row-major tensor as it lies in memory. The caller must set `out`.
inline unpack::UnpackSpec stored_elements(DType stored, const Shape& shape) {
  unpack::UnpackSpec unpack;
  unpack.stored = stored;
  unpack.shape = shape;
  unpack.stride_bits = row_major(shape, 8 * static_cast<int64_t>(size_of(stored)));
  return unpack;
}

}  // namespace feedline::flow
