// The work of one GPU thread that unpacks rows by the definition of gpu/unpack/unpack_spec.h. A thread computes a few
// neighbouring elements (a vector) of every n-th row. A kernel (gpu/cuda/unpack_kernels.cu) runs all threads at once;
// without a GPU, tests run them one after another.
//
// A thread finds out once where its elements lie and what happens to them. Each row then costs its loads, the
// arithmetic and one store of up to 16 bytes. Neighbouring threads write neighbouring vectors; after the last vector of
// a row comes the first vector of the next row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "gpu/unpack/element.h"

namespace feedline::gpu {

/// A spec, the rows, and how the rows are divided among the threads. Plain data; all pointers are to device memory.
struct UnpackArgs {
  const std::byte* in;  // the first input row; the next one begins in_stride bytes later
  uint64_t in_stride;
  const int64_t* numbers;  // of the input row that each output row is made from; null: the output row's own number
  std::byte* out;          // the first output row; the next one begins out_stride bytes later
  uint64_t out_stride;
  uint64_t rows;
  uint64_t vectors;     // how many vectors an output row has
  uint64_t row_groups;  // thread t does the rows t / vectors, t / vectors + row_groups, ...

  // Where the fields lie: see Layout in gpu/unpack/unpack_layout.h.
  int64_t base;
  int axes;
  int channel_axis;  // -1 if no axis has channels that differ
  uint64_t length[Shape::max_rank];
  int64_t stride[Shape::max_rank];
  const int64_t* channel_offset;  // bits, for each channel; or null

  DType stored;  // unset: fields of `width` bits
  int width;
  bool sign_extend, lsb_first, big_endian;
  bool aligned;  // whether whole elements lie at multiples of their size

  const ChannelMath* steps;     // for each channel, or one for all
  const std::byte* bit_values;  // for single bits: the values of 0 and of 1, for each channel, or once for all
};

/// How many elements a thread writes at a time: 16 bytes, but at most 8 elements.
template <typename Out>
inline constexpr int vector_elements = sizeof(Out) >= 4 ? 16 / static_cast<int>(sizeof(Out)) : 8;

namespace detail {

/// Where an element lies in its row, and its channel.
struct ElementPlace {
  int64_t bit = 0;  // where the field begins
  uint64_t channel = 0;
};

/// Returns rest % length and divides `rest` by `length`. Makes a 64-bit division, which is very slow on a GPU, only if
/// `rest` is at least 2^32 and not less than `length`.
FEEDLINE_ELEMENT uint64_t take_index(uint64_t& rest, uint64_t length) {
  uint64_t index = rest;
  if (rest < length) {
    rest = 0;
  } else if (rest <= 0xffffffffu) {
    index = static_cast<uint32_t>(rest) % static_cast<uint32_t>(length);
    rest = static_cast<uint32_t>(rest) / static_cast<uint32_t>(length);
  } else {
    index = rest % length;
    rest /= length;
  }
  return index;
}

FEEDLINE_ELEMENT ElementPlace place_of(const UnpackArgs& args, uint64_t element) {
  ElementPlace place{args.base, 0};
  for (int axis = args.axes - 1; axis >= 0; axis--) {
    const uint64_t index = take_index(element, args.length[axis]);
    place.bit += static_cast<int64_t>(index) * args.stride[axis];
    if (axis == args.channel_axis) place.channel = index;
  }
  if (args.channel_offset) place.bit += args.channel_offset[place.channel];
  return place;
}

template <typename T>
FEEDLINE_ELEMENT T load_element(const std::byte* at, bool aligned, bool big_endian) {
  if (!aligned || big_endian) return read_element<T>(at, big_endian);
  T value;
  __builtin_memcpy(&value, __builtin_assume_aligned(at, sizeof(T)), sizeof(T));
  return value;
}

/// Does what read_bits() does, but reads whole bytes: a field lies in at most five of them.
FEEDLINE_ELEMENT uint32_t load_bits(const std::byte* row, int64_t bit, int width, bool lsb_first) {
  const std::byte* const at = row + bit / 8;
  const int skip = static_cast<int>(bit % 8), bytes = (skip + width + 7) / 8;
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) {
    const uint64_t byte = static_cast<uint64_t>(at[i]);
    value = lsb_first ? value | byte << (8 * i) : value << 8 | byte;
  }
  value >>= lsb_first ? skip : 8 * bytes - skip - width;
  return static_cast<uint32_t>(value & ((uint64_t{1} << width) - 1));
}

/// Returns the element of type From at `at` as int64_t, float or double, whichever holds all values of From.
template <typename From>
FEEDLINE_ELEMENT auto load_wide(const UnpackArgs& args, const std::byte* at) {
  const From value = load_element<From>(at, args.aligned, args.big_endian);
  if constexpr (std::is_same_v<From, Bool>)
    return static_cast<int64_t>(value.byte != 0);
  else if constexpr (std::is_same_v<From, Half> || std::is_same_v<From, BFloat>)
    return widen(value);
  else if constexpr (std::is_integral_v<From>)
    return static_cast<int64_t>(value);
  else
    return value;
}

/// Returns a stored value as Wide: the type (int64_t, float or double) that holds every value of the stored type. A
/// cast from Wide has the same result as a cast from the stored type. All threads take the same branch.
template <typename Wide>
FEEDLINE_ELEMENT Wide load_as(const UnpackArgs& args, const std::byte* row, int64_t bit) {
  const std::byte* const at = row + bit / 8;
  if constexpr (std::is_same_v<Wide, double>) {
    return load_wide<double>(args, at);
  } else if constexpr (std::is_same_v<Wide, float>) {
    if (args.stored == DType::float32) return load_wide<float>(args, at);
    return args.stored == DType::float16 ? load_wide<Half>(args, at) : load_wide<BFloat>(args, at);
  } else {
    switch (args.stored) {
      case DType::boolean:
        return load_wide<Bool>(args, at);
      case DType::uint8:
        return load_wide<uint8_t>(args, at);
      case DType::int8:
        return load_wide<int8_t>(args, at);
      case DType::uint16:
        return load_wide<uint16_t>(args, at);
      case DType::int16:
        return load_wide<int16_t>(args, at);
      case DType::uint32:
        return load_wide<uint32_t>(args, at);
      case DType::int32:
        return load_wide<int32_t>(args, at);
      case DType::int64:
        return load_wide<int64_t>(args, at);
      default:
        const uint32_t field = load_bits(row, bit, args.width, args.lsb_first);
        return args.sign_extend ? int64_t{sign_extended(field, args.width)} : int64_t{field};
    }
  }
}

}  // namespace detail

/// Lets one bit choose between two values. Only the size of the type Value matters.
template <typename Value>
struct BitsOp {
  using Out = Value;
  struct Element {
    int64_t byte;
    uint8_t mask;
    Value values[2];
  };
  FEEDLINE_ELEMENT static Element prepare(const UnpackArgs& args, const detail::ElementPlace& place) {
    Element element;
    element.byte = place.bit / 8;
    element.mask = static_cast<uint8_t>(1 << (args.lsb_first ? place.bit % 8 : 7 - place.bit % 8));
    for (int bit = 0; bit < 2; bit++)
      element.values[bit] =
          detail::load_element<Value>(args.bit_values + (2 * place.channel + bit) * sizeof(Value), true, false);
    return element;
  }
  FEEDLINE_ELEMENT static Value run(const UnpackArgs&, const std::byte* row, const Element& element) {
    return static_cast<uint8_t>(row[element.byte]) & element.mask ? element.values[1] : element.values[0];
  }
};

/// Copies an element as it is stored, except that the order of its bytes may be reversed.
template <typename Value>
struct CopyOp {
  using Out = Value;
  using Element = int64_t;  // the byte of the row at which the element begins
  FEEDLINE_ELEMENT static Element prepare(const UnpackArgs&, const detail::ElementPlace& place) {
    return place.bit / 8;
  }
  FEEDLINE_ELEMENT static Value run(const UnpackArgs& args, const std::byte* row, Element byte) {
    return detail::load_element<Value>(row + byte, args.aligned, args.big_endian);
  }
};

/// Loads an element as Wide (int64_t, float or double), does its channel's steps, and casts the result.
template <typename Wide, typename To>
struct ConvertOp {
  using Out = To;
  struct Element {
    int64_t bit;
    ChannelMath steps;
  };
  FEEDLINE_ELEMENT static Element prepare(const UnpackArgs& args, const detail::ElementPlace& place) {
    return {place.bit, args.steps[place.channel]};
  }
  FEEDLINE_ELEMENT static To run(const UnpackArgs& args, const std::byte* row, const Element& element) {
    return apply<To>(element.steps, detail::load_as<Wide>(args, row, element.bit));
  }
};

/// Does the work of thread number `thread`. There are args.vectors * args.row_groups threads.
template <typename Op, int... i>
FEEDLINE_ELEMENT void unpack_thread(const UnpackArgs& args, uint64_t thread, std::integer_sequence<int, i...>) {
  using Out = typename Op::Out;
  constexpr uint64_t vector = sizeof...(i);
  struct alignas(sizeof(Out) * vector) Vector {
    Out element[vector];
  };
  const uint64_t number = thread % args.vectors;
  // The pack expansion is unrolled, so all of this stays in registers.
  const typename Op::Element elements[] = {Op::prepare(args, detail::place_of(args, number * vector + i))...};
  for (uint64_t row = thread / args.vectors; row < args.rows; row += args.row_groups) {
    const std::byte* const from =
        args.in + (args.numbers ? static_cast<uint64_t>(args.numbers[row]) : row) * args.in_stride;
    const Vector out{{Op::run(args, from, elements[i])...}};
    std::byte* const to = args.out + row * args.out_stride + number * sizeof(Vector);
    __builtin_memcpy(__builtin_assume_aligned(to, sizeof(Vector)), &out, sizeof(Vector));
  }
}
template <typename Op, int vector>
FEEDLINE_ELEMENT void unpack_thread(const UnpackArgs& args, uint64_t thread) {
  unpack_thread<Op>(args, thread, std::make_integer_sequence<int, vector>{});
}

}  // namespace feedline::gpu
