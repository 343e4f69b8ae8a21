// The loops that all SIMD levels share. Each level compiles them for its own instruction set, and compilers vectorise
// them. Include this file once, inside the namespace of the level, after unpack/kernels.h and unpack/cast.h
// have been included outside of that namespace. This file has no #pragma once and no #include: unpack/kernels.h says
// why.
//
// Before it includes this file, the level must define two functions for bytes of three channels. Each makes the
// assignments that stand behind it here, for i = 0, 1, ... up to n - 1, but may stop earlier. It returns for how many i
// it has made them. This file does the rest one by one.
//   size_t thirds(in, out, n)            out[i] = in[3 * i]; reads nothing beyond in[3 * (n - 1)]
//   size_t triples(in, stride, out, n)   out[3 * i + c] = in[i + c * stride]

template <typename T>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  T value;
};
template <typename T>
const Unaligned<T>* at(const std::byte* p) {
  return reinterpret_cast<const Unaligned<T>*>(p);
}
template <typename T>
Unaligned<T>* at(std::byte* p) {
  return reinterpret_cast<Unaligned<T>*>(p);
}

template <typename From, typename To>
void cast_all(const std::byte* __restrict in, std::byte* __restrict out, size_t n) {
  if constexpr (std::is_same_v<From, To> && !std::is_same_v<From, Bool>)
    __builtin_memcpy(out, in, n * sizeof(To));
  else
    for (size_t i = 0; i < n; i++) at<To>(out)[i].value = cast<To>(at<From>(in)[i].value);
}

inline void affine_all(float* __restrict x, size_t n, const StepArrays& steps) {
  const float* __restrict scale = steps.scale, * __restrict bias = steps.bias_or_mean;
  if (steps.uniform)
    for (size_t i = 0; i < n; i++) x[i] = affine(x[i], scale[0], bias[0]);
  else
    for (size_t i = 0; i < n; i++) x[i] = affine(x[i], scale[i], bias[i]);
}

inline void normalize_all(float* __restrict x, size_t n, const StepArrays& steps) {
  const float* __restrict scale = steps.scale, * __restrict mean = steps.bias_or_mean, * __restrict std = steps.std;
  if (steps.uniform)
    for (size_t i = 0; i < n; i++) x[i] = normalized(x[i], scale[0], mean[0], std[0]);
  else
    for (size_t i = 0; i < n; i++) x[i] = normalized(x[i], scale[i], mean[i], std[i]);
}

template <typename To>
void normalize_bytes(const std::byte* __restrict in, std::byte* __restrict out, size_t n, const StepArrays& steps) {
  const float* __restrict scale = steps.scale, * __restrict mean = steps.bias_or_mean, * __restrict std = steps.std;
  const auto* bytes = reinterpret_cast<const uint8_t*>(in);
  if (steps.uniform)
    for (size_t i = 0; i < n; i++)
      at<To>(out)[i].value = cast<To>(normalized(cast<float>(bytes[i]), scale[0], mean[0], std[0]));
  else
    for (size_t i = 0; i < n; i++)
      at<To>(out)[i].value = cast<To>(normalized(cast<float>(bytes[i]), scale[i], mean[i], std[i]));
}

template <typename T>
void strided(const std::byte* __restrict in, int64_t stride, std::byte* __restrict out, size_t n) {
  size_t i = 0;
  if (stride == 3 && sizeof(T) == 1) i = thirds(in, out, n);
  for (; i < n; i++) at<T>(out)[i] = *at<T>(in + static_cast<int64_t>(i) * stride);
}

template <typename T>
void interleave(const std::byte* __restrict in, int64_t stride, size_t channels, std::byte* __restrict out, size_t n) {
  const size_t each = n / channels;
  if (channels == 3) {
    const auto *a = at<T>(in), *b = at<T>(in + stride), *c = at<T>(in + 2 * stride);
    for (size_t i = sizeof(T) == 1 ? triples(in, stride, out, each) : 0; i < each; i++) {
      at<T>(out)[3 * i] = a[i];
      at<T>(out)[3 * i + 1] = b[i];
      at<T>(out)[3 * i + 2] = c[i];
    }
  } else {
    for (size_t c = 0; c < channels; c++)
      for (size_t i = 0; i < each; i++) at<T>(out)[i * channels + c] = at<T>(in + static_cast<int64_t>(c) * stride)[i];
  }
}

template <typename T>
void scattered(const std::byte* __restrict in, const int64_t* __restrict offset, std::byte* __restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) at<T>(out)[i] = *at<T>(in + offset[i]);
}

template <typename T>
void from_rows(const std::byte* const* __restrict in, int64_t offset, std::byte* __restrict out, size_t n) {
  for (size_t i = 0; i < n; i++) at<T>(out)[i] = *at<T>(in[i] + offset);
}

inline void copy_rows(const std::byte* const* in, int64_t offset, size_t bytes, std::byte* out, size_t stride,
                      size_t n) {
  for (size_t i = 0; i < n; i++) __builtin_memcpy(out + i * stride, in[i] + offset, bytes);
}

inline uint8_t swapped(uint8_t x) { return x; }
inline uint16_t swapped(uint16_t x) { return __builtin_bswap16(x); }
inline uint32_t swapped(uint32_t x) { return __builtin_bswap32(x); }
inline uint64_t swapped(uint64_t x) { return __builtin_bswap64(x); }
template <typename T>
void swap_all(const std::byte* in, std::byte* out, size_t n) {
  for (size_t i = 0; i < n; i++) at<T>(out)[i].value = swapped(at<T>(in)[i].value);
}

inline void copy(const std::byte* in, std::byte* out, size_t bytes) { __builtin_memcpy(out, in, bytes); }
inline void no_fence() {}

// Eight bytes hold any field. For a field near the end of the row, the last eight bytes of the row are loaded, so that
// nothing beyond the row is read.
inline void fields(const FieldLayout& layout, const std::byte* row, int64_t base, uint32_t* out, size_t n) {
  const int64_t last = static_cast<int64_t>(layout.row_bytes) - 8;
  const int down = 64 - layout.width;
  for (size_t i = 0; i < n; i++) {
    const int64_t bit = base + layout.offset[i], byte = bit / 8 < last ? bit / 8 : last;
    const int skipped = static_cast<int>(bit - 8 * byte);
    const uint64_t eight = at<uint64_t>(row + byte)->value;
    // Shifts the field to the top of the word and then down again, which clears all other bits.
    const uint64_t top = layout.lsb_first ? eight << (down - skipped) : swapped(eight) << skipped;
    out[i] = layout.sign_extend ? static_cast<uint32_t>(static_cast<int64_t>(top) >> down)
                                : static_cast<uint32_t>(top >> down);
  }
}

#define FEEDLINE_FROM(From)                                                                                            \
  {                                                                                                                    \
    nullptr, nullptr, cast_all<From, Bool>, cast_all<From, uint8_t>, cast_all<From, int8_t>, cast_all<From, uint16_t>, \
        cast_all<From, int16_t>, cast_all<From, uint32_t>, cast_all<From, int32_t>, cast_all<From, int64_t>,           \
        cast_all<From, Half>, cast_all<From, BFloat>, cast_all<From, float>, cast_all<From, double>                    \
  }
#define FEEDLINE_SIZES(kernel) \
  { kernel<uint8_t>, kernel<uint16_t>, kernel<uint32_t>, kernel<uint64_t> }

// Returns the table of kernels of a level, which may then replace entries by faster ones.
consteval Kernels common(const char* level) {
  return {
      .level = level,
      .cast = {{},
               {},
               FEEDLINE_FROM(Bool),
               FEEDLINE_FROM(uint8_t),
               FEEDLINE_FROM(int8_t),
               FEEDLINE_FROM(uint16_t),
               FEEDLINE_FROM(int16_t),
               FEEDLINE_FROM(uint32_t),
               FEEDLINE_FROM(int32_t),
               FEEDLINE_FROM(int64_t),
               FEEDLINE_FROM(Half),
               FEEDLINE_FROM(BFloat),
               FEEDLINE_FROM(float),
               FEEDLINE_FROM(double)},
      .affine = affine_all,
      .normalize = normalize_all,
      .normalize_bytes = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                          normalize_bytes<Half>, normalize_bytes<BFloat>, normalize_bytes<float>, nullptr},
      .lookup = {},
      .strided = FEEDLINE_SIZES(strided),
      .interleave = FEEDLINE_SIZES(interleave),
      .scattered = FEEDLINE_SIZES(scattered),
      .from_rows = FEEDLINE_SIZES(from_rows),
      .copy_rows = copy_rows,
      .swap = FEEDLINE_SIZES(swap_all),
      .stream = copy,
      .fence = no_fence,
      .fields = fields,
      .lanes = 64,
      .window = 64,
      .small_window = 64,
      .bits = {},
  };
}

#undef FEEDLINE_FROM
#undef FEEDLINE_SIZES
