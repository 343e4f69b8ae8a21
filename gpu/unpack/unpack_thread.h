// What one thread of a GPU does to unpack rows: gpu/unpack/unpack_spec.h's definition for a few neighbouring elements of every n-th
// row. Kernels call it for all their threads at once (unpack_kernels.cu), and whoever has no GPU one after another.
//
// Where its elements lie and what happens to them is worked out once; a row then costs its loads, the arithmetic and
// one store of up to 16 bytes. Neighbouring threads write neighbouring vectors, of the next row where a row ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "gpu/unpack/element.h"

namespace feedline::gpu {

/// A spec, the rows, and how they are dealt out to threads. Plain data; pointers are of the device.
struct UnpackArgs {
  const std::byte* in;  // rows, in_stride bytes from each to the next
  uint64_t in_stride;
  std::byte* out;
  uint64_t out_stride;
  uint64_t rows;
  uint64_t vectors;     // of the output, in a row
  uint64_t row_groups;  // thread t begins with row t / vectors, and goes on by row_groups

  // Where fields lie: gpu/unpack/unpack_layout.h.
  int64_t base;
  int axes;
  int channel_axis;  // -1: none whose channels differ
  uint64_t length[Shape::max_rank];
  int64_t stride[Shape::max_rank];
  const int64_t* channel_offset;  // bits for each channel, or null

  DType stored;  // unset: fields of `width` bits
  int width;
  bool sign_extend, lsb_first, big_endian;
  bool aligned;  // whole elements lie at multiples of their size

  const ChannelMath* steps;     // of each channel, or one
  const std::byte* bit_values;  // of single bits: for each channel, or one, what 0 and what 1 becomes
};

/// Elements that a thread writes at once: 16 bytes, or 8 elements.
template <typename Out>
inline constexpr int vector_elements = sizeof(Out) >= 4 ? 16 / static_cast<int>(sizeof(Out)) : 8;

namespace detail {

struct ElementPlace {
  int64_t bit = 0;
  uint64_t channel = 0;
};

/// index = rest % length; rest /= length. Divisions of 64 bits are what a GPU is slowest at.
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

/// read_bits(), by bytes: up to five hold a field.
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

template <typename From>
FEEDLINE_ELEMENT auto load_wide(const UnpackArgs& args, const std::byte* at) {
  const From value = load_element<From>(at, args.aligned, args.big_endian);
  if constexpr (same<From, Bool>)
    return static_cast<int64_t>(value.byte != 0);
  else if constexpr (same<From, Half> || same<From, BFloat>)
    return widen(value);
  else if constexpr (is_integer<From>)
    return static_cast<int64_t>(value);
  else
    return value;
}

/// A stored value in the type that holds all of its kind, which every cast takes to the same as its own type. The same
/// branch for all threads.
template <typename Wide>
FEEDLINE_ELEMENT Wide load_as(const UnpackArgs& args, const std::byte* row, int64_t bit) {
  const std::byte* const at = row + bit / 8;
  if constexpr (same<Wide, double>) {
    return load_wide<double>(args, at);
  } else if constexpr (same<Wide, float>) {
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

/// One bit chooses between two values. Of values only the size counts.
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

/// An element as it is stored, but for the order of its bytes.
template <typename Value>
struct CopyOp {
  using Out = Value;
  using Element = int64_t;  // byte
  FEEDLINE_ELEMENT static Element prepare(const UnpackArgs&, const detail::ElementPlace& place) {
    return place.bit / 8;
  }
  FEEDLINE_ELEMENT static Value run(const UnpackArgs& args, const std::byte* row, Element byte) {
    return detail::load_element<Value>(row + byte, args.aligned, args.big_endian);
  }
};

/// ChannelMath and cast. Wide: int64_t, float or double.
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

/// The part of thread number `thread`; there are args.vectors * args.row_groups.
template <typename Op, int... i>
FEEDLINE_ELEMENT void unpack_thread(const UnpackArgs& args, uint64_t thread, std::integer_sequence<int, i...>) {
  using Out = typename Op::Out;
  constexpr uint64_t vector = sizeof...(i);
  struct alignas(sizeof(Out) * vector) Vector {
    Out element[vector];
  };
  const uint64_t number = thread % args.vectors;
  // Unrolled, so that all this lies in registers.
  const typename Op::Element elements[] = {Op::prepare(args, detail::place_of(args, number * vector + i))...};
  for (uint64_t row = thread / args.vectors; row < args.rows; row += args.row_groups) {
    const std::byte* const from = args.in + row * args.in_stride;
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
