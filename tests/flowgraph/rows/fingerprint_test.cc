// Fingerprint64 of FarmHash, against what FarmHash's own program returns.
#include "flowgraph/rows/fingerprint.h"

#include <string>
#include <vector>

#include "support/catch.h"

using namespace feedline::flow;

TEST_CASE("the fingerprint of text is that of FarmHash, on both sides of every length that it treats differently") {
  // Of pyfarmhash 0.5.1, which is FarmHash's C++: farmhash.fingerprint64(bytes((i * i * 7 + n * 13 + i) % 256 for i in
  // range(n))).
  constexpr struct {
    size_t size;
    uint64_t wanted;
  } cases[] = {
      {0, 0x9ae16a3b2f90404f},   {1, 0x8aa334f91c5bc106},   {2, 0x705c6a3048c30953},   {3, 0xc5ebf78b5189643e},
      {4, 0x9fbc7da67a72ae12},   {7, 0x57f4f6de9c22cd6f},   {8, 0x45e51d631b25ddd5},   {9, 0x1fad4beddcafc957},
      {15, 0x2cc665031ea68054},  {16, 0xb6aee57fbbfb7309},  {17, 0xa12ceb4d3c646da8},  {24, 0xddba958aa3a13311},
      {31, 0x64c4d3412bf7601d},  {32, 0xb3821100b8886555},  {33, 0x4fc0decfef311b97},  {48, 0x964e9c6e701b6164},
      {63, 0x65794ec4997a9ef5},  {64, 0x42e276be80dabb73},  {65, 0xc520220ee5907f88},  {100, 0x674ef556b9f17ae5},
      {127, 0x556461e425606022}, {128, 0xca2f4017d69a0161}, {129, 0x1dac1f778d4fbd2b}, {191, 0xc00190282c0a0b90},
      {192, 0xfb76893d0ca1575c}, {193, 0x285881df820e1b20}, {399, 0x6a2eff6559abcc1b},
  };
  for (const auto& [size, wanted] : cases) {
    INFO(size << " bytes");
    std::string text(size, '\0');
    for (size_t i = 0; i < size; i++) text[i] = static_cast<char>(i * i * 7 + size * 13 + i);
    CHECK(fingerprint(text) == wanted);
    // Nothing beyond the text is read.
    const std::vector<char> exact(text.begin(), text.end());
    CHECK(fingerprint({exact.data(), exact.size()}) == wanted);
  }
}

TEST_CASE("the fingerprint of text that people know") {
  CHECK(fingerprint("") == 0x9ae16a3b2f90404f);
  CHECK(fingerprint("hello") == 0xb48be5a931380ce8);  // BigQuery: FARM_FINGERPRINT('hello'), as a signed number
  CHECK(fingerprint("-9223372036854775808") == 0x14b9bc6f6d2837e0);
  CHECK(fingerprint(std::string(100, 'x')) == 0x5b7616b854568a1f);
}
