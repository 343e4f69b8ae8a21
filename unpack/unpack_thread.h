// The work of one GPU thread that unpacks rows by the definition of unpack/unpack_spec.h. A thread computes a few
// neighbouring elements (a vector) of every n-th row. A kernel (gpu/cuda/unpack_kernels.cu) runs all threads at once;
// without a GPU, tests run them one after another.
//
// A thread finds out once where its elements lie and what happens to them. Each row then costs its loads, the
// arithmetic and one store of up to 16 bytes (PlanesOp: one store for each channel). Neighbouring threads write
// neighbouring vectors; after the last vector of a row comes the first vector of the next row.
//
// An Op defines what a thread does with a row: load() loads the stored elements of a vector, and store() makes the
// output from these elements and stores it. If an Op loads little for each store, a thread loads rows_together rows
// before it stores the first of them, so that it waits for all these rows at the same time. A branch between the loads
// would make the thread wait there. So load() is compiled separately for each way to load, and does not choose the way
// at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "unpack/check_aligned.h"
#include "unpack/divisor.h"
#include "unpack/element.h"

namespace feedline::unpack {

/// The ways to load whole elements:
/// - bytes: byte by byte, because elements may lie at any byte or are big-endian.
/// - elements: each element at once.
/// - vectors: all elements of a vector at once, up to 16 bytes at a time, because they lie one after another.
enum class Load : uint8_t { bytes, elements, vectors };

/// A spec, the rows, and how the rows are divided among the threads. Plain data; all pointers are to device memory.
struct UnpackArgs {
  const std::byte* in;  // the first input row; the next one begins in_stride bytes later
  uint64_t in_stride;
  const int64_t* numbers;  // output row i is made from input row numbers[i], or from input row i if this is null
  std::byte* out;          // the first output row; the next one begins out_stride bytes later
  uint64_t out_stride;
  uint32_t rows;
  uint32_t row_groups;         // thread t does the rows t / vectors, t / vectors + row_groups, ...
  uint64_t in_step, out_step;  // the bytes from one of these rows to the next
  Divisor vectors;             // how many vectors an output row has

  // The places of the fields, as Layout in unpack/unpack_layout.h states them.
  int64_t base;
  int axes;
  int channel_axis;  // -1 if no axis has channels that differ
  Divisor length[Shape::max_rank];
  int64_t stride[Shape::max_rank];
  const int64_t* channel_offset;  // bits, for each channel; or null
  bool in_runs;                   // whether the elements of a vector follow one another on the last axis

  DType stored;  // if unset, the fields have `width` bits
  Load load;
  bool big_endian, sign_extend, lsb_first;
  int width;

  const ChannelMath* steps;  // for each channel, or one for all
  // A table of the values of the output: for the bits 0 and 1 if single bits are unpacked, for the bytes 0 to 255 if
  // bytes are looked up. There is one table for each channel, or one for all channels.
  const std::byte* values;
  uint32_t values_bytes;
};

/// The number of elements that a thread writes at a time: 16 bytes, but at most 8 elements.
template <typename Out>
inline constexpr int vector_elements = sizeof(Out) >= 4 ? 16 / static_cast<int>(sizeof(Out)) : 8;

namespace detail {

/// The places of a vector's elements in their row, and the channels of the elements. (The number of a channel has 29
/// bits here. They are enough: a pipeline with 2^29 channels that differ would be larger than a protobuf message may
/// be.)
template <int vector>
class Places {
 public:
  FEEDLINE_ELEMENT Places(const UnpackArgs& args, uint32_t first) {
    const int last = args.axes - 1;
    int64_t bits = args.base;
    uint32_t channel = 0;
    for (int i = 0; i < vector; i++) {
      if (i > 0 && args.in_runs) {
        bits += args.stride[last];
        channel += last == args.channel_axis;
      } else {
        uint32_t element = first + static_cast<uint32_t>(i);
        bits = args.base;
        for (int axis = last; axis > 0; axis--) {
          const Quotient rest = divide(element, args.length[axis]);
          bits += rest.remainder * args.stride[axis];
          if (axis == args.channel_axis) channel = rest.remainder;
          element = rest.quotient;
        }
        bits += element * args.stride[0];
        if (args.channel_axis == 0) channel = element;
      }
      const int64_t at = bits + (args.channel_offset ? args.channel_offset[channel] : 0);
      byte_[i] = static_cast<int32_t>(at / 8);
      channel_and_bit_[i] = channel << 3 | (static_cast<uint32_t>(at) & 7);
    }
  }

  /// Returns the byte in which the field of an element begins.
  FEEDLINE_ELEMENT int32_t byte(int i) const { return byte_[i]; }
  /// Returns the bit of that byte at which the field begins, in the row's bit order.
  FEEDLINE_ELEMENT int bit(int i) const { return static_cast<int>(channel_and_bit_[i] & 7); }
  FEEDLINE_ELEMENT uint32_t channel(int i) const { return channel_and_bit_[i] >> 3; }

 private:
  int32_t byte_[vector];
  uint32_t channel_and_bit_[vector];
};

/// A vector of elements in memory.
template <typename T, int vector>
struct alignas(sizeof(T) * vector) Vector {
  T element[vector];
  FEEDLINE_ELEMENT void store(std::byte* to) const {
    check_aligned(to, sizeof(Vector));
#ifdef __CUDA_ARCH__
    // __stcs() makes the bytes that it writes the first to leave the cache. So bytes leave it in order, and memory is
    // faster at that. (An H200 wrote FLOAT32 made from bits at 0.86 of the rate of cudaMemsetAsync, and at 0.70 without
    // __stcs().)
    if constexpr (sizeof(Vector) == 16) {
      uint4 words;
      __builtin_memcpy(&words, this, sizeof words);
      __stcs(reinterpret_cast<uint4*>(to), words);
      return;
    }
#endif
    __builtin_memcpy(__builtin_assume_aligned(to, sizeof(Vector)), this, sizeof(Vector));
  }
};

/// Loads a T that lies at a multiple of its size.
template <typename T>
FEEDLINE_ELEMENT T load_aligned(const std::byte* at) {
  check_aligned(at, sizeof(T));
  T value;
  __builtin_memcpy(&value, __builtin_assume_aligned(at, sizeof(T)), sizeof(T));
  return value;
}

/// Calls f with the way to load as its template argument. All threads take the same branch.
template <typename F>
FEEDLINE_ELEMENT void with_load(Load load, F&& f) {
  if (load == Load::vectors)
    f.template operator()<Load::vectors>();
  else if (load == Load::elements)
    f.template operator()<Load::elements>();
  else
    f.template operator()<Load::bytes>();
}

/// Loads a vector's elements, of type T, from a row.
template <Load load, typename T, int vector>
FEEDLINE_ELEMENT void load_elements(const UnpackArgs& args, const std::byte* row, const Places<vector>& places,
                                    T (&values)[vector]) {
  if constexpr (load == Load::vectors) {
    constexpr int at_once = sizeof(T) * vector <= 16 ? vector : 16 / static_cast<int>(sizeof(T));
    for (int i = 0; i < vector; i += at_once) {
      const auto loaded = load_aligned<Vector<T, at_once>>(row + places.byte(0) + i * static_cast<int>(sizeof(T)));
      for (int j = 0; j < at_once; j++) values[i + j] = loaded.element[j];
    }
  } else if constexpr (load == Load::elements) {
    for (int i = 0; i < vector; i++) values[i] = load_aligned<T>(row + places.byte(i));
  } else {
    for (int i = 0; i < vector; i++) values[i] = read_element<T>(row + places.byte(i), args.big_endian);
  }
}

/// Returns what read_bits() returns for the field that begins at bit `skip` of the byte at `at`. Reads whole bytes, not
/// single bits; a field lies in at most five bytes.
FEEDLINE_ELEMENT uint32_t load_bits(const std::byte* at, int skip, int width, bool lsb_first) {
  const int bytes = (skip + width + 7) / 8;
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) {
    const uint64_t byte = static_cast<uint64_t>(at[i]);
    value = lsb_first ? value | byte << (8 * i) : value << 8 | byte;
  }
  value >>= lsb_first ? skip : 8 * bytes - skip - width;
  return static_cast<uint32_t>(value & ((uint64_t{1} << width) - 1));
}

/// Returns an element as Wide, a type that holds all values of T.
template <typename Wide, typename T>
FEEDLINE_ELEMENT Wide widened(T value) {
  if constexpr (std::is_same_v<T, Bool>)
    return static_cast<Wide>(value.byte != 0);
  else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat>)
    return widen(value);
  else
    return static_cast<Wide>(value);
}

/// Loads a vector's elements as Wide, which holds every value of the stored type. Wide is float if float holds all of
/// them, else int64_t or double. A cast from Wide has the same result as a cast from the stored type. All threads take
/// the same branch.
template <typename Wide, int vector>
FEEDLINE_ELEMENT void load_wide(const UnpackArgs& args, const std::byte* row, const Places<vector>& places,
                                Wide (&values)[vector]) {
  const auto load = [&]<typename T>(T) {
    T stored[vector];
    with_load(args.load, [&]<Load how>() { load_elements<how>(args, row, places, stored); });
    for (int i = 0; i < vector; i++) values[i] = widened<Wide>(stored[i]);
  };
  const auto load_fields = [&] {
    for (int i = 0; i < vector; i++) {
      const uint32_t field = load_bits(row + places.byte(i), places.bit(i), args.width, args.lsb_first);
      values[i] = args.sign_extend ? static_cast<Wide>(sign_extended(field, args.width)) : static_cast<Wide>(field);
    }
  };
  if constexpr (std::is_same_v<Wide, double>) {
    load(double{});
  } else if constexpr (std::is_same_v<Wide, float>) {
    switch (args.stored) {
      case DType::float32:
        return load(float{});
      case DType::float16:
        return load(Half{});
      case DType::bfloat16:
        return load(BFloat{});
      case DType::boolean:
        return load(Bool{});
      case DType::uint8:
        return load(uint8_t{});
      case DType::int8:
        return load(int8_t{});
      case DType::uint16:
        return load(uint16_t{});
      case DType::int16:
        return load(int16_t{});
      default:
        return load_fields();
    }
  } else {
    switch (args.stored) {
      case DType::uint32:
        return load(uint32_t{});
      case DType::int32:
        return load(int32_t{});
      case DType::int64:
        return load(int64_t{});
      default:
        return load_fields();
    }
  }
}

}  // namespace detail

/// Lets each bit choose between two values. Only the size of the type Value matters.
template <typename Value, int elements>
class BitsOp {
 public:
  using Out = Value;
  static constexpr int vector = elements;
  static constexpr bool looks_up = false;

  FEEDLINE_ELEMENT BitsOp(const UnpackArgs& args, const std::byte* values, uint32_t number) {
    const detail::Places<vector> places(args, number * vector);
    for (int i = 0; i < vector; i++) {
      byte_[i] = places.byte(i);
      mask_[i] = static_cast<uint8_t>(1 << (args.lsb_first ? places.bit(i) : 7 - places.bit(i)));
      for (int bit = 0; bit < 2; bit++)
        value_[i][bit] =
            detail::load_aligned<Value>(values + (2 * places.channel(i) + static_cast<uint32_t>(bit)) * sizeof(Value));
    }
  }
  struct Loaded {
    uint8_t bytes[vector];
  };
  static constexpr uint32_t rows_together = 1;
  template <Load>
  FEEDLINE_ELEMENT void load(const UnpackArgs&, const std::byte* row, Loaded& loaded) const {
    for (int i = 0; i < vector; i++) loaded.bytes[i] = static_cast<uint8_t>(row[byte_[i]]);
  }
  FEEDLINE_ELEMENT void store(const UnpackArgs&, const std::byte*, const Loaded& loaded, std::byte* to) const {
    detail::Vector<Value, vector> out;
    for (int i = 0; i < vector; i++) out.element[i] = loaded.bytes[i] & mask_[i] ? value_[i][1] : value_[i][0];
    out.store(to);
  }

 private:
  int32_t byte_[vector];
  uint8_t mask_[vector];
  Value value_[vector][2];
};

/// Copies an element as it is stored, except that the order of its bytes may be reversed.
template <typename Value, int elements>
class CopyOp {
 public:
  using Out = Value;
  static constexpr int vector = elements;
  static constexpr bool looks_up = false;

  FEEDLINE_ELEMENT CopyOp(const UnpackArgs& args, const std::byte*, uint32_t number) : places_(args, number * vector) {}
  using Loaded = detail::Vector<Value, vector>;
  static constexpr uint32_t rows_together = sizeof(Value) < 8 ? 4 : 2;
  template <Load how>
  FEEDLINE_ELEMENT void load(const UnpackArgs& args, const std::byte* row, Loaded& loaded) const {
    detail::load_elements<how>(args, row, places_, loaded.element);
  }
  FEEDLINE_ELEMENT void store(const UnpackArgs&, const std::byte*, const Loaded& loaded, std::byte* to) const {
    loaded.store(to);
  }

 private:
  detail::Places<vector> places_;
};

/// Looks up the output value of each byte in a table of the values of all bytes (args.values). store() gets a copy of
/// this table in memory that is near to the thread.
template <typename Value, int elements>
class LookupOp {
 public:
  using Out = Value;
  static constexpr int vector = elements;
  static constexpr bool looks_up = true;

  FEEDLINE_ELEMENT LookupOp(const UnpackArgs& args, const std::byte*, uint32_t number)
      : places_(args, number * vector) {}
  struct Loaded {
    uint8_t bytes[vector];
  };
  static constexpr uint32_t rows_together = 4;
  template <Load how>
  FEEDLINE_ELEMENT void load(const UnpackArgs& args, const std::byte* row, Loaded& loaded) const {
    detail::load_elements<how>(args, row, places_, loaded.bytes);
  }
  FEEDLINE_ELEMENT void store(const UnpackArgs&, const std::byte* values, const Loaded& loaded, std::byte* to) const {
    detail::Vector<Value, vector> out;
    for (int i = 0; i < vector; i++)
      out.element[i] =
          detail::load_aligned<Value>(values + (256 * places_.channel(i) + loaded.bytes[i]) * sizeof(Value));
    out.store(to);
  }

 private:
  detail::Places<vector> places_;
};

/// Looks up the bytes of a vector of neighbouring pixels, whose channels lie one after another, and writes each channel
/// to a plane of its own. This is for a spec whose Layout has two axes, channels and pixels, and in which each vector
/// of pixels begins at a multiple of 4 bytes.
template <typename Value, int channels>
class PlanesOp {
 public:
  using Out = Value;
  static constexpr int vector = vector_elements<Value>;
  static constexpr bool looks_up = true;

  FEEDLINE_ELEMENT PlanesOp(const UnpackArgs& args, const std::byte*, uint32_t number) {
    const bool reversed = args.stride[0] < 0;  // the first channel is the last byte of a pixel
    const int64_t first = args.base / 8 - (reversed ? channels - 1 : 0);
    byte_ = static_cast<int32_t>(first + int64_t{number} * (vector * channels));
    for (int i = 0; i < channels; i++) channel_[i] = static_cast<uint32_t>(reversed ? channels - 1 - i : i);
  }
  struct Loaded {
    uint32_t words[vector * channels / 4];
  };
  static constexpr uint32_t rows_together = 1;
  template <Load>
  FEEDLINE_ELEMENT void load(const UnpackArgs&, const std::byte* row, Loaded& loaded) const {
    for (int i = 0; i < vector * channels / 4; i++)
      loaded.words[i] = detail::load_aligned<uint32_t>(row + byte_ + i * static_cast<int>(sizeof(uint32_t)));
  }
  FEEDLINE_ELEMENT void store(const UnpackArgs& args, const std::byte* values, const Loaded& loaded,
                              std::byte* to) const {
    for (int c = 0; c < channels; c++) {
      const std::byte* const of_channel = values + (args.channel_axis == 0 ? 256 * sizeof(Value) * channel_[c] : 0);
      detail::Vector<Value, vector> out;
      for (int i = 0; i < vector; i++) {
        const int at = i * channels + c;
        const uint32_t byte = loaded.words[at / 4] >> (8 * (at % 4)) & 0xff;
        out.element[i] = detail::load_aligned<Value>(of_channel + byte * sizeof(Value));
      }
      out.store(to + uint64_t{channel_[c]} * args.length[1].value * sizeof(Value));
    }
  }

 private:
  int32_t byte_;                // where the first pixel begins in the row
  uint32_t channel_[channels];  // the channel of each byte of a pixel
};

/// Loads elements as Wide (int64_t, float or double), computes the steps (scale and bias, normalize) of their channel,
/// and casts the results. All elements of a vector have the same steps.
template <typename Wide, typename To, int elements>
class ConvertOp {
 public:
  using Out = To;
  static constexpr int vector = elements;
  static constexpr bool looks_up = false;

  FEEDLINE_ELEMENT ConvertOp(const UnpackArgs& args, const std::byte*, uint32_t number)
      : places_(args, number * vector), steps_(args.steps[places_.channel(0)]) {}
  struct Loaded {
    Wide values[vector];
  };
  static constexpr uint32_t rows_together = 1;
  template <Load>
  FEEDLINE_ELEMENT void load(const UnpackArgs& args, const std::byte* row, Loaded& loaded) const {
    detail::load_wide(args, row, places_, loaded.values);
  }
  FEEDLINE_ELEMENT void store(const UnpackArgs&, const std::byte*, const Loaded& loaded, std::byte* to) const {
    detail::Vector<To, vector> out;
    apply(steps_, loaded.values, out.element);
    out.store(to);
  }

 private:
  detail::Places<vector> places_;
  ChannelMath steps_;
};

/// Does the work of thread number `thread`. There are args.vectors.value * args.row_groups threads. `values` is
/// args.values, or a copy of it.
template <typename Op>
FEEDLINE_ELEMENT void unpack_thread(const UnpackArgs& args, const std::byte* values, uint32_t thread) {
  const Quotient place = divide(thread, args.vectors);
  const Op op(args, values, place.remainder);
  const std::byte* in = args.in + place.quotient * args.in_stride;
  std::byte* out = args.out + place.quotient * args.out_stride +
                   place.remainder * sizeof(detail::Vector<typename Op::Out, Op::vector>);
  uint32_t row = place.quotient;
  const auto do_rows = [&]<Load how, uint32_t count>() {
    typename Op::Loaded loaded[count];
    for (uint32_t i = 0; i < count; i++) {
      const std::byte* from = in;
      if (args.numbers)
        from = args.in + static_cast<uint64_t>(args.numbers[row + i * args.row_groups]) * args.in_stride;
      op.template load<how>(args, from, loaded[i]);
      in += args.in_step;
    }
    for (uint32_t i = 0; i < count; i++) {
      op.store(args, values, loaded[i], out);
      out += args.out_step;
    }
    row += count * args.row_groups;
  };
  constexpr uint32_t together = Op::rows_together;
  const auto do_all = [&]<Load how>() {
    if constexpr (together > 1)
      while (row < args.rows && args.rows - row > (together - 1) * uint64_t{args.row_groups})
        do_rows.template operator()<how, together>();
    while (row < args.rows) do_rows.template operator()<how, 1>();
  };
  if constexpr (together > 1)
    detail::with_load(args.load, do_all);
  else
    do_all.template operator()<Load::bytes>();
}

}  // namespace feedline::unpack
