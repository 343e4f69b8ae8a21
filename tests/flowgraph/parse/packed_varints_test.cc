// Compares the decoders with reading one varint after the other. Memory ends where the varints end, so that a sanitizer
// sees each byte that is read beyond.
#include "flowgraph/parse/packed_varints.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "base/machine.h"
#include "support/catch.h"

using namespace feedline;
using namespace feedline::flow;

namespace {

constexpr size_t before = 10;  // bytes that may be read before the first

std::vector<uint8_t> varint(uint64_t value) {
  std::vector<uint8_t> bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<uint8_t>(value | 0x80));
  bytes.push_back(static_cast<uint8_t>(value));
  return bytes;
}

/// The bytes in memory of just their size.
class Packed {
 public:
  explicit Packed(const std::vector<uint8_t>& bytes)
      : size_(bytes.size()), memory_(new uint8_t[before + bytes.size()]) {
    std::fill_n(memory_.get(), before, uint8_t{0xff});
    std::ranges::copy(bytes, memory_.get() + before);
  }
  const uint8_t* begin() const { return memory_.get() + before; }
  const uint8_t* end() const { return begin() + size_; }

 private:
  size_t size_;
  std::unique_ptr<uint8_t[]> memory_;
};

/// What decode_varints() must return, and the values.
uint64_t one_by_one(const Packed& packed, uint64_t capacity, std::vector<int64_t>& values) {
  for (const uint8_t* p = packed.begin(); p != packed.end();) {
    uint64_t value;
    if (values.size() == capacity || !(p = wire::read_varint(p, packed.end(), value))) return wire::unfit;
    values.push_back(static_cast<int64_t>(value));
  }
  return values.size();
}

void check(const std::vector<uint8_t>& bytes, uint64_t capacity) {
  const Packed packed(bytes);
  std::vector<int64_t> wanted;
  const uint64_t count = one_by_one(packed, capacity, wanted);
  const auto values = std::make_unique<int64_t[]>(capacity);
  const uint64_t found = wire::decode_varints(packed.begin(), packed.end(), values.get(), capacity);
  if (found != count || (count != wire::unfit && !std::equal(wanted.begin(), wanted.end(), values.get())))
    FAIL(found << " values instead of " << count << ", of " << bytes.size() << " bytes, at most " << capacity);
}

}  // namespace

TEST_CASE("a varint of any width is read from its end, and no other bytes are") {
  for (size_t size = 0; size <= 12; size++) {
    std::vector<uint8_t> bytes(size, 0x81);
    if (size > 0) bytes.back() = 1;
    const Packed packed(bytes);
    uint64_t value = 0, wanted = 0;
    CAPTURE(size);
    REQUIRE(wire::read_varint_before(packed.end(), size, value) == (size >= 1 && size <= 10));
    if (size < 1 || size > 10) continue;
    CHECK(wire::read_varint(packed.begin(), packed.end(), wanted) == packed.end());
    CHECK(value == wanted);
    CHECK_FALSE(wire::read_varint_before(packed.end() - 1, size == 10 ? 9 : size, value));  // it is not ended
  }
}

TEST_CASE("packed varints are those that follow one another, as many as have room") {
  const ScopedSimdLevel level(GENERATE(SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512));
  CAPTURE(name(simd_level()));
  std::mt19937_64 random(3);
  for (const size_t count : {0, 1, 2, 6, 7, 8, 9, 31, 63, 64, 65, 127, 128, 129, 200})
    for (int kind = 0; kind < 12; kind++) {
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i < count; i++) {
        // Of one width, or of any: kind 10 has many widths, and kind 11 few long ones.
        const int width = kind < 10       ? kind + 1
                          : kind == 10    ? 1 + static_cast<int>(random() % 10)
                          : random() % 16 ? 1
                                          : 10;
        const uint64_t value = random() >> (64 - std::min(64, 7 * width));
        std::ranges::copy(varint(value), std::back_inserter(bytes));
      }
      for (const uint64_t capacity : {uint64_t{count}, uint64_t{count} + 1, uint64_t{count} - (count > 0)}) {
        check(bytes, capacity);
        if (bytes.empty()) continue;
        std::vector<uint8_t> wrong = bytes;
        wrong.back() |= 0x80;  // the last one is not ended
        check(wrong, capacity);
        wrong = bytes;
        wrong.insert(wrong.begin() + static_cast<ptrdiff_t>(random() % wrong.size()), 10, 0x80);  // one is too long
        check(wrong, capacity);
      }
    }
}
