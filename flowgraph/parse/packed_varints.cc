#include "flowgraph/parse/packed_varints.h"

#include <bit>

#include "base/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace feedline::flow::wire {
namespace {

/// Returns 8 bits; bit i is 1 if byte i ends a varint.
uint64_t ends_of_8(uint64_t word) noexcept { return ((~word & 0x8080808080808080) >> 7) * 0x0102040810204080 >> 56; }

uint64_t ends_of(const uint8_t* p, size_t size) noexcept {
  uint64_t ends = 0;
  size_t i = 0;
  for (; i + 8 <= size; i += 8) ends |= ends_of_8(load<uint64_t>(p + i)) << i;
  for (; i < size; i++) ends |= uint64_t{p[i] < 0x80} << i;
  return ends;
}

// Decodes varints of at most 8 bytes until it meets a longer one or reaches `limit`. Returns the position at which it
// stopped, which is just after a varint. CPUs with these instructions have a fast pext, unlike older AMD CPUs.
#if defined(__x86_64__)
__attribute__((target("avx512f,avx512bw,bmi,bmi2"))) const uint8_t* decode_narrow(const uint8_t* p, const uint8_t* end,
                                                                                  int64_t*& out,
                                                                                  const int64_t* limit) noexcept {
  const uint8_t* start = p;
  while (p != end) {
    const size_t size = end - p < 64 ? static_cast<size_t>(end - p) : 64;
    const uint64_t some = ~uint64_t{0} >> (64 - size);
    for (uint64_t ends = ~_mm512_movepi8_mask(_mm512_maskz_loadu_epi8(some, p)) & some; ends != 0; ends &= ends - 1) {
      const uint8_t* after = p + std::countr_zero(ends) + 1;
      const auto width = static_cast<size_t>(after - start);
      if (width > 8 || out == limit) return start;
      start = after;
      *out++ = static_cast<int64_t>(_pext_u64(load<uint64_t>(after - 8), 0x7f7f7f7f7f7f7f7f << (64 - 8 * width)));
    }
    p += size;
  }
  return start;
}
#else
const uint8_t* decode_narrow(const uint8_t* p, const uint8_t*, int64_t*&, const int64_t*) noexcept { return p; }
#endif

}  // namespace

uint64_t decode_varints(const uint8_t* p, const uint8_t* end, int64_t* out, uint64_t capacity) noexcept {
  const int64_t* const first = out;
  const int64_t* const limit = out + capacity;
  if (simd_level() == SimdLevel::avx512) p = decode_narrow(p, end, out, limit);
  const uint8_t* start = p;  // the first byte of the varint whose end was not found yet
  while (p != end) {
    const size_t size = end - p < 64 ? static_cast<size_t>(end - p) : 64;
    for (uint64_t ends = ends_of(p, size); ends != 0; ends &= ends - 1) {
      if (out == limit) return unfit;
      const uint8_t* after = p + std::countr_zero(ends) + 1;
      const size_t width = static_cast<size_t>(after - start);
      start = after;
      // All bytes between two ends have their continuation bits set, so that widths up to 8 need no check.
      uint64_t value;
      if (width <= 8) [[likely]] {
        value = squeeze(load<uint64_t>(after - 8) >> (64 - 8 * width));
      } else if (!read_varint_before(after, width, value)) {
        return unfit;
      }
      *out++ = static_cast<int64_t>(value);
    }
    p += size;
  }
  return start == end ? static_cast<uint64_t>(out - first) : unfit;
}

}  // namespace feedline::flow::wire
