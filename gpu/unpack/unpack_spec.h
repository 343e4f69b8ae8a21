// Rows of packed fields -> a dense tensor. The one operation behind every dense output.
//
//   value     = decode(the `width` bits at bit_offset + sum(index[i] * stride_bits[i]) + channel_bits[c])
//   if scale or bias:  value = round32(round32(scale[c] * round32(value)) + bias[c])
//   if normalize:      value = round32(round32(round32(round32(value) * scale) - mean[c]) / std[c])
//   out       = cast(value)
//
// c is the index on `channel_axis`. round32 is the nearest float32, ties to even; constants are rounded to float32
// first. Without scale, bias and normalize the decoded value is cast directly. The casts (saturation, NaN, rounding)
// are the table in gpu/README.md. No operation is contracted into a fused one. unpack_reference() is this definition,
// literally; Unpacker is equal to it bit for bit on every path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "feedline/tensor.h"

namespace feedline::gpu {

struct Normalize {
  std::optional<float> scale;
  std::vector<float> mean, std;  // none, one, or one for each channel
};

struct UnpackSpec {
  // The stored field.
  DType stored = DType::unset;  // a whole element of this type; unset: a bit field, see width
  bool big_endian = false;      // of a stored element
  int width = 1;                // of a bit field, 1 to 32 bits
  bool sign_extend = false;
  bool lsb_first = false;  // bit i of the row is bit i % 8 (else 7 - i % 8) of byte i / 8; a field's first bit is its
                           // least significant one (else its most significant): np.unpackbits' bitorder

  // Where the fields are; one stride for each axis of shape, in bits. Elements lie at multiples of 8.
  int64_t bit_offset = 0;
  Shape shape;  // as delivered, without the rows
  std::vector<int64_t> stride_bits;

  // Channels. channel_axis < 0: none; then scale, bias, mean and std have at most one entry.
  int channel_axis = -1;
  std::vector<int64_t> channel_bits;  // none, or an extra bit offset for each channel (the channel order)
  std::vector<float> scale, bias;     // none, one, or one for each channel
  std::optional<Normalize> normalize;

  DType out = DType::unset;

  /// Bytes that a row must have for all fields to lie inside it.
  uint64_t row_bytes() const;
};

/// The definition. rows[i] points at the first byte of row i; `out` takes rows.size() * elements, contiguous.
void unpack_reference(const UnpackSpec& spec, std::span<const std::byte* const> rows, std::byte* out);

/// How an output is written. cached: as usual. streaming: past the caches, where rows lie one behind the other; for
/// outputs that have left the caches, or will have before anybody reads them: they then cost half the memory traffic.
/// streaming_copies: so where rows are copied as they lie, which is memory alone and gains by it first.
enum class Stores : uint8_t { cached, streaming_copies, streaming };

/// One value through the cast table, for formulas (`out.X` is X as rounded to its dtype) and default values.
double cast_through(DType dtype, double value) noexcept;

}  // namespace feedline::gpu
