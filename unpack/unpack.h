// Unpacks rows of packed fields into a dense tensor, as unpack_spec.h defines it, with the fastest kernels of the CPU.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/machine.h"
#include "unpack/unpack_spec.h"

namespace feedline::unpack {

/// Unpacks rows by one spec. All preparation is done by the constructor. Immutable: any number of threads may use it at
/// the same time.
class Unpacker {
 public:
  /// Throws Error bad_pipeline for a spec that makes no sense (a vector of the wrong size, a stride that is not a whole
  /// number of bytes for whole elements, ...). `level` is the SIMD level of the kernels, which the CPU must have.
  explicit Unpacker(UnpackSpec spec, SimdLevel level = simd_level(), Stores stores = Stores::cached);
  ~Unpacker();
  Unpacker(Unpacker&&) noexcept;
  Unpacker& operator=(Unpacker&&) noexcept;

  const UnpackSpec& spec() const noexcept;

  /// Unpacks rows. rows[i] points to the first byte of row i. Row i of the output is written at out + i * out_stride;
  /// its elements are contiguous. out_stride is in bytes; 0 means that the rows are contiguous, too. Reads no byte of a
  /// row beyond row_bytes(). `out` must be aligned to the size of an element. Allocates no memory.
  void operator()(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride = 0) const noexcept;

  /// Returns whether a row of the output is an unchanged copy of the stored row's bytes from spec().bit_offset on.
  bool is_copy() const noexcept;

  /// Returns the name of the chosen kernel and its SIMD level, for reports and benchmarks: "bits/avx512".
  const char* kernel() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline::unpack
