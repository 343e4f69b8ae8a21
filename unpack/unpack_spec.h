// The specification of unpacking: from rows of packed fields to a dense tensor. Every dense output is made by this one
// operation. An element of the output is computed like this:
//
//   value     = decode(the `width` bits at bit_offset + sum(index[i] * stride_bits[i]) + channel_bits[c])
//   if scale or bias:  value = round32(round32(scale[c] * round32(value)) + bias[c])
//   if normalize:      value = round32(round32(round32(round32(value) * scale) - mean[c]) / std[c])
//   out       = cast(value)
//
// index[i] is the index of the element on axis i of the output, and c is its index on `channel_axis`. round32 rounds to
// the nearest float32, ties to even. Constants are rounded to float32 first. Without scale, bias and normalize, the
// decoded value is cast directly. unpack/README.md has the table of casts (saturation, NaN, rounding). Multiplications
// and additions are never fused. unpack_reference() follows this definition literally; Unpacker gives the same bits on
// every path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "feedline/tensor.h"

namespace feedline::unpack {

struct Normalize {
  std::optional<float> scale;    // absent: 1
  std::vector<float> mean, std;  // no value (mean 0, std 1), one, or one for each channel
  bool operator==(const Normalize&) const = default;
};

struct UnpackSpec {
  // The stored field.
  DType stored = DType::unset;  // the type of a field that is a whole element; if unset, a field has `width` bits
  bool big_endian = false;      // the byte order of a whole element
  int width = 1;                // the bits of a bit field, 1 to 32
  bool sign_extend = false;     // whether a bit field is signed
  // The bit order, as `bitorder` of np.unpackbits. If true, bit i of the row is bit i % 8 of byte i / 8, and the first
  // bit of a field is its least significant one. If false, bit i of the row is bit 7 - i % 8 of byte i / 8, and the
  // first bit of a field is its most significant one.
  bool lsb_first = false;

  // The places of the fields. Whole elements lie at whole bytes, so for them all these offsets and strides are
  // multiples of 8.
  int64_t bit_offset = 0;            // the bit of a row at which index 0 of all axes lies
  Shape shape;                       // the shape of the output, without the axis of rows
  std::vector<int64_t> stride_bits;  // one for each axis of `shape`, in bits

  // Channels. If channel_axis < 0, there are no channels, and scale, bias, mean and std have at most one value.
  int channel_axis = -1;
  std::vector<int64_t> channel_bits;  // empty, or an extra bit offset for each channel (the channel order)
  std::vector<float> scale, bias;     // no value (scale 1, bias 0), one, or one for each channel
  std::optional<Normalize> normalize;

  DType out = DType::unset;  // the dtype of the output

  bool operator==(const UnpackSpec&) const = default;
  /// Returns how many bytes a row must have for all fields to lie inside it.
  uint64_t row_bytes() const;
};

/// Unpacks rows by following the definition literally. rows[i] points to the first byte of row i. `out` has room for
/// rows.size() rows of the output, without gaps.
void unpack_reference(const UnpackSpec& spec, std::span<const std::byte* const> rows, std::byte* out);

/// The ways to write an output:
/// - cached: with ordinary stores.
/// - streaming: with stores that bypass the caches, if the rows of the output are contiguous. This halves the memory
///   traffic of an output that is no longer in the caches, or will have left them before it is read.
/// - streaming_copies: streaming if rows are copied unchanged, else cached. A copy is limited only by memory, so it is
///   the first to gain from streaming.
enum class Stores : uint8_t { cached, streaming_copies, streaming };

}  // namespace feedline::unpack
