#include "flowgraph/rows/fingerprint.h"

#include <bit>
#include <cstddef>
#include <utility>

#include "base/load.h"

namespace feedline::flow {
namespace {

constexpr uint64_t k0 = 0xc3a5c85c97cb3127, k1 = 0xb492b66fbe98f273, k2 = 0x9ae16a3b2f90404f;

uint64_t mixed(uint64_t x) noexcept { return x ^ (x >> 47); }

uint64_t both(uint64_t a, uint64_t b, uint64_t factor) noexcept {
  a = mixed((a ^ b) * factor);
  return mixed((b ^ a) * factor) * factor;
}

uint64_t word(const char* at) noexcept { return load<uint64_t>(at); }

uint64_t up_to_16(const char* s, size_t size) noexcept {
  const uint64_t factor = k2 + size * 2;
  if (size >= 8) {
    const uint64_t a = word(s) + k2, b = word(s + size - 8);
    return both(std::rotr(b, 37) * factor + a, (std::rotr(a, 25) + b) * factor, factor);
  }
  if (size >= 4) return both(size + (uint64_t{load<uint32_t>(s)} << 3), load<uint32_t>(s + size - 4), factor);
  if (size == 0) return k2;
  const auto byte = [s](size_t at) { return uint32_t{static_cast<unsigned char>(s[at])}; };
  const uint32_t y = byte(0) + (byte(size / 2) << 8), z = static_cast<uint32_t>(size) + (byte(size - 1) << 2);
  return mixed(y * k2 ^ z * k0) * k2;
}

uint64_t up_to_32(const char* s, size_t size) noexcept {
  const uint64_t factor = k2 + size * 2, a = word(s) * k1, b = word(s + 8), c = word(s + size - 8) * factor,
                 d = word(s + size - 16) * k2;
  return both(std::rotr(a + b, 43) + std::rotr(c, 30) + d, a + std::rotr(b + k2, 18) + c, factor);
}

uint64_t up_to_64(const char* s, size_t size) noexcept {
  const uint64_t factor = k2 + size * 2, a = word(s) * k2, b = word(s + 8), c = word(s + size - 8) * factor,
                 d = word(s + size - 16) * k2, y = std::rotr(a + b, 43) + std::rotr(c, 30) + d,
                 z = both(y, a + std::rotr(b + k2, 18) + c, factor), e = word(s + 16) * factor, f = word(s + 24),
                 g = (y + word(s + size - 32)) * factor, h = (z + word(s + size - 24)) * factor;
  return both(std::rotr(e + f, 43) + std::rotr(g, 30) + h, e + std::rotr(f + a, 18) + g, factor);
}

struct Pair {
  uint64_t first = 0, second = 0;
};

Pair of_32(const char* s, uint64_t a, uint64_t b) noexcept {
  a += word(s);
  b = std::rotr(b + a + word(s + 24), 21);
  const uint64_t before = a;
  a += word(s + 8) + word(s + 16);
  b += std::rotr(a, 44);
  return {a + word(s + 24), b + before};
}

}  // namespace

uint64_t fingerprint(std::string_view text) noexcept {
  const char* s = text.data();
  const size_t size = text.size();
  if (size <= 16) return up_to_16(s, size);
  if (size <= 32) return up_to_32(s, size);
  if (size <= 64) return up_to_64(s, size);
  constexpr uint64_t seed = 81;
  uint64_t x = seed * k2 + word(s), y = seed * k1 + 113, z = mixed(y * k2 + 113) * k2;
  Pair v, w;
  // Mixes 64 bytes. The last 64 bytes have a factor of their own, and may begin within bytes that were mixed before.
  const auto mix = [&](uint64_t factor, uint64_t times) {
    x = std::rotr(x + y + v.first + word(s + 8), 37) * factor;
    y = std::rotr(y + v.second + word(s + 48), 42) * factor;
    x ^= w.second * times;
    y += v.first * times + word(s + 40);
    z = std::rotr(z + w.first, 33) * factor;
    v = of_32(s, v.second * factor, x + w.first);
    w = of_32(s + 32, z + w.second, y + word(s + 16));
    std::swap(z, x);
  };
  for (const char* const last = s + (size - 1) / 64 * 64; s != last; s += 64) mix(k1, 1);
  const uint64_t factor = k1 + ((z & 0xff) << 1);
  s = text.data() + size - 64;
  w.first += (size - 1) % 64;
  v.first += w.first;
  w.first += v.first;
  mix(factor, 9);
  return both(both(v.first, w.first, factor) + mixed(y) * k0 + z, both(v.second, w.second, factor) + x, factor);
}

}  // namespace feedline::flow
