// Kernels that AVX2 and AVX-512 share: casts of 16-bit floats (by F16C and by integer rounding), copies of long rows,
// and stores that bypass the caches. Included in the same way as unpack/kernels_common.h, and after it.

inline __m256 load_floats(const std::byte* in, size_t i) {
  return _mm256_loadu_ps(reinterpret_cast<const float*>(in) + i);
}

// Replaces every NaN in x by the canonical NaN.
inline __m256 canonical_nan(__m256 x) {
  return _mm256_blendv_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(float_nan))),
                          _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

inline void store(const std::byte* in, std::byte* out, size_t n, Half) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    // F16C would keep the payload of a NaN. So every NaN becomes the canonical NaN of float32 first. It has only the
    // quiet bit, so F16C turns it into the canonical NaN of float16.
    const __m128i half =
        _mm256_cvtps_ph(canonical_nan(load_floats(in, i)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * sizeof(Half)), half);
  }
  for (; i < n; i++) at<Half>(out)[i].value = cast<Half>(at<float>(in)[i].value);
}

inline __m256i rounded_to_bfloat(__m256 x) {
  const __m256i bits = _mm256_castps_si256(canonical_nan(x));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
}
inline void store(const std::byte* in, std::byte* out, size_t n, BFloat) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i a = rounded_to_bfloat(load_floats(in, i)), b = rounded_to_bfloat(load_floats(in, i + 8));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i * sizeof(BFloat)), both);
  }
  for (; i < n; i++) at<BFloat>(out)[i].value = cast<BFloat>(at<float>(in)[i].value);
}

// Casts From to float32, and the float32 to To. The result is that of cast(), because float32 keeps all bits of From
// that can change it.
template <typename From, typename To>
void cast_to_short(const std::byte* in, std::byte* out, size_t n) {
  if constexpr (std::is_same_v<From, float>) return store(in, out, n, To{});
  alignas(64) std::byte values[tile_elements * sizeof(float)];
  for (size_t count; n > 0; n -= count, in += count * sizeof(From), out += count * sizeof(To)) {
    count = n < tile_elements ? n : tile_elements;
    cast_all<From, float>(in, values, count);
    store(values, out, count, To{});
  }
}
template <typename To>
void cast_from_half(const std::byte* in, std::byte* out, size_t n) {
  alignas(64) float values[tile_elements];
  for (size_t count; n > 0; n -= count, in += count * sizeof(Half), out += count * sizeof(To)) {
    count = n < tile_elements ? n : tile_elements;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * sizeof(Half)));
      _mm256_store_ps(values + i, canonical_nan(_mm256_cvtph_ps(half)));
    }
    for (; i < count; i++) values[i] = cast<float>(at<Half>(in)[i].value);
    cast_all<float, To>(reinterpret_cast<const std::byte*>(values), out, count);
  }
}
template <typename To>
void normalize_to_short(const std::byte* in, std::byte* out, size_t n, const StepArrays& steps) {
  alignas(64) std::byte values[tile_elements * sizeof(float)];
  normalize_bytes<float>(in, values, n, steps);
  store(values, out, n, To{});
}

// Copies a row of 32 bytes or more. glibc's memcpy would copy long rows, up to the size of the second-level cache, with
// `rep movsb`. On AMD's Zen 3 and 4 that is a third slower than this loop, and several times slower if `out` lies just
// after `in` within a page (sourceware.org bug 30994).
inline void copy_row(const std::byte* in, std::byte* out, size_t bytes) {
  const auto load = [in](size_t i) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i)); };
  const size_t tail = bytes - 32;
  size_t i = 32 - reinterpret_cast<uintptr_t>(out) % 32;
  const __m256i last = load(tail);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), load(0));
  for (; i < tail; i += 32) _mm256_store_si256(reinterpret_cast<__m256i*>(out + i), load(i));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + tail), last);
}
inline void copy_long_rows(const std::byte* const* in, int64_t offset, size_t bytes, std::byte* out, size_t stride,
                           size_t n) {
  if (bytes < 32) return copy_rows(in, offset, bytes, out, stride, n);
  for (size_t i = 0; i < n; i++) copy_row(in[i] + offset, out + i * stride, bytes);
}

inline void stream(const std::byte* in, std::byte* out, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(out + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i)));
}
inline void fence() { _mm_sfence(); }

consteval void use_x86(Kernels& kernels) {
  kernels.copy_rows = copy_long_rows;
  kernels.stream = stream;
  kernels.fence = fence;
  constexpr int half = static_cast<int>(DType::float16), bfloat = static_cast<int>(DType::bfloat16);
  auto& cast = kernels.cast;
  cast[static_cast<int>(DType::boolean)][half] = cast_to_short<Bool, Half>;
  cast[static_cast<int>(DType::uint8)][half] = cast_to_short<uint8_t, Half>;
  cast[static_cast<int>(DType::int8)][half] = cast_to_short<int8_t, Half>;
  cast[static_cast<int>(DType::uint16)][half] = cast_to_short<uint16_t, Half>;
  cast[static_cast<int>(DType::int16)][half] = cast_to_short<int16_t, Half>;
  cast[static_cast<int>(DType::uint32)][half] = cast_to_short<uint32_t, Half>;
  cast[static_cast<int>(DType::int32)][half] = cast_to_short<int32_t, Half>;
  cast[static_cast<int>(DType::int64)][half] = cast_to_short<int64_t, Half>;
  cast[static_cast<int>(DType::float32)][half] = cast_to_short<float, Half>;
  cast[static_cast<int>(DType::bfloat16)][half] = cast_to_short<BFloat, Half>;
  cast[static_cast<int>(DType::boolean)][bfloat] = cast_to_short<Bool, BFloat>;
  cast[static_cast<int>(DType::uint8)][bfloat] = cast_to_short<uint8_t, BFloat>;
  cast[static_cast<int>(DType::int8)][bfloat] = cast_to_short<int8_t, BFloat>;
  cast[static_cast<int>(DType::uint16)][bfloat] = cast_to_short<uint16_t, BFloat>;
  cast[static_cast<int>(DType::int16)][bfloat] = cast_to_short<int16_t, BFloat>;
  cast[static_cast<int>(DType::float32)][bfloat] = cast_to_short<float, BFloat>;
  cast[half][static_cast<int>(DType::boolean)] = cast_from_half<Bool>;
  cast[half][static_cast<int>(DType::uint8)] = cast_from_half<uint8_t>;
  cast[half][static_cast<int>(DType::int8)] = cast_from_half<int8_t>;
  cast[half][static_cast<int>(DType::uint16)] = cast_from_half<uint16_t>;
  cast[half][static_cast<int>(DType::int16)] = cast_from_half<int16_t>;
  cast[half][static_cast<int>(DType::uint32)] = cast_from_half<uint32_t>;
  cast[half][static_cast<int>(DType::int32)] = cast_from_half<int32_t>;
  cast[half][static_cast<int>(DType::int64)] = cast_from_half<int64_t>;
  cast[half][static_cast<int>(DType::float32)] = cast_from_half<float>;
  cast[half][static_cast<int>(DType::float64)] = cast_from_half<double>;
  kernels.normalize_bytes[half] = normalize_to_short<Half>;
  kernels.normalize_bytes[bfloat] = normalize_to_short<BFloat>;
}
