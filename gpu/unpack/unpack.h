// Rows of packed fields -> a dense tensor, as unpack_spec.h defines it, fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/machine.h"
#include "gpu/unpack/unpack_spec.h"

namespace feedline::gpu {

/// The same, made ready once and fast. Immutable: any number of threads may run it at once.
class Unpacker {
 public:
  /// Throws Error bad_pipeline for a spec that makes no sense (vectors of the wrong size, stride on a part of a
  /// byte...).
  explicit Unpacker(UnpackSpec spec, SimdLevel level = simd_level(), Stores stores = Stores::cached);
  ~Unpacker();
  Unpacker(Unpacker&&) noexcept;
  Unpacker& operator=(Unpacker&&) noexcept;

  const UnpackSpec& spec() const noexcept;

  /// Row i is written at out + i * out_stride, elements of a row contiguous. out_stride 0: rows contiguous. Reads no
  /// byte behind row_bytes() of a row. `out` aligned to the element. No allocation.
  void operator()(std::span<const std::byte* const> rows, std::byte* out, size_t out_stride = 0) const noexcept;

  /// Whether a row of the output is the bytes of the stored row from spec().bit_offset on.
  bool is_copy() const noexcept;

  /// Which kernel was chosen, for reports and benchmarks: "bits1/avx512".
  const char* kernel() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace feedline::gpu
