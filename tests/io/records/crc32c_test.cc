#include "io/records/crc32c.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace feedline::io;

namespace {

template <Crc32cPath path>
struct By {
  static uint32_t extend(uint32_t crc, std::span<const std::byte> bytes) { return crc32c_extend(path, crc, bytes); }
  static bool here() { return supported(path); }
};
struct Fastest {
  static uint32_t extend(uint32_t crc, std::span<const std::byte> bytes) { return crc32c_extend(crc, bytes); }
  static bool here() { return true; }
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The definition, one bit at a time.
uint32_t by_bits(uint32_t crc, std::span<const std::byte> bytes) {
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0x82f63b78u : 0);
  }
  return ~crc;
}

std::vector<std::byte> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace

TEMPLATE_TEST_CASE("CRC32C", "", By<Crc32cPath::table>, By<Crc32cPath::hardware>, By<Crc32cPath::three_way>,
                   By<Crc32cPath::folding>, Fastest) {
  if (!TestType::here()) {
    WARN("this CPU lacks the path");
    return;
  }

  SECTION("RFC 3720, appendix B.4") {
    const auto crc = [](const std::string& text) { return TestType::extend(0, bytes_of(text)); };
    std::string up, down;
    for (int i = 0; i < 32; i++) {
      up += static_cast<char>(i);
      down += static_cast<char>(31 - i);
    }
    CHECK(crc(std::string(32, '\0')) == 0x8a9136aa);
    CHECK(crc(std::string(32, '\xff')) == 0x62a8ab43);
    CHECK(crc(up) == 0x46dd794e);
    CHECK(crc(down) == 0x113fdb5c);
    CHECK(crc("123456789") == 0xe3069283);
    CHECK(crc("") == 0);
    const unsigned char command[48] = {0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                       0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                       0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
    CHECK(TestType::extend(0, std::as_bytes(std::span(command))) == 0xd9963a56);
  }

  SECTION("every length up to 700 at every alignment") {
    const auto data = random_bytes(720, 1);
    size_t wrong = 0;
    for (size_t begin = 0; begin < 16; begin++)
      for (size_t size = 0; size <= 700; size++) {
        const auto part = std::span(data).subspan(begin, size);
        wrong += TestType::extend(0, part) != by_bits(0, part);
      }
    CHECK(wrong == 0);
  }

  SECTION("long inputs, random starts") {
    const auto data = random_bytes(300'000, 2);
    std::mt19937 random(3);
    for (int i = 0; i < 60; i++) {
      const size_t begin = random() % 64;
      const size_t size = i < 40 ? random() % 20'000 : random() % (data.size() - begin);
      const auto before = static_cast<uint32_t>(random());
      const auto part = std::span(data).subspan(begin, size);
      INFO(begin << " " << size);
      CHECK(TestType::extend(before, part) == by_bits(before, part));
    }
  }

  SECTION("any cut gives the same") {
    const auto data = random_bytes(9000, 4);
    const uint32_t whole = by_bits(0, data);
    std::mt19937 random(5);
    for (int i = 0; i < 200; i++) {
      uint32_t crc = 0;
      for (std::span<const std::byte> rest = data; !rest.empty();) {
        const size_t size = std::min<size_t>(rest.size(), 1 + random() % (i % 2 ? 40 : 4000));
        crc = TestType::extend(crc, rest.first(size));
        rest = rest.subspan(size);
      }
      REQUIRE(crc == whole);
    }
  }
}

TEST_CASE("masking") {
  CHECK(mask_crc(0) == 0xa282ead8);
  // tensorflow/core/lib/hash/crc32c_test.cc: masking is not its own inverse, and unmasking undoes it.
  const uint32_t crc = crc32c(bytes_of("foo"));
  CHECK(mask_crc(crc) != crc);
  CHECK(mask_crc(mask_crc(crc)) != crc);
  CHECK(unmask_crc(mask_crc(crc)) == crc);
  CHECK(unmask_crc(unmask_crc(mask_crc(mask_crc(crc)))) == crc);
}

TEST_CASE("the best path is one that this CPU has") { CHECK(supported(best_crc32c_path())); }
