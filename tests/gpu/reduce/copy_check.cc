// Many copies by one kernel: on a GPU, or its threads one after another on the host.
#include <algorithm>
#include <random>
#include <vector>

#include "copy_device.h"
#include "feedline/device.h"
#include "support/catch.h"
#include "support/skip.h"

using namespace feedline::gpu;
using namespace feedline::test;

namespace {

Bytes random_bytes(size_t count, std::minstd_rand& random) {
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random() >> 8); });
  return bytes;
}

}  // namespace

TEST_CASE("parts of every size and alignment are copied, and nothing beside them") {
  if (const auto why = no_device()) return skip(*why);
  std::minstd_rand random(1);
  const std::vector<size_t> sizes = {0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 64, 100, 4096};
  const std::vector<size_t> large = {copy_piece_bytes - 16, copy_piece_bytes, copy_piece_bytes + 2,
                                     3 * copy_piece_bytes + 48};
  const size_t count = GENERATE(0, 1, 5, CopyArgs::most_parts - 1, CopyArgs::most_parts, CopyArgs::most_parts + 1, 250);
  constexpr size_t room = 3 * copy_piece_bytes + 128;  // a multiple of 16
  const Bytes from = random_bytes(count * room, random);
  Bytes to = random_bytes(count * room, random), wanted = to;
  std::vector<CopyPart> parts;
  for (size_t i = 0; i < count; i++) {
    const std::vector<size_t>& of = random() % 3 ? sizes : large;
    const size_t alignment = size_t{1} << random() % 5, bytes = of[random() % of.size()];
    const size_t source = i * room + random() % 4 * alignment, place = i * room + random() % 4 * alignment;
    parts.push_back({from.data() + source, to.data() + place, bytes});
    std::copy_n(from.begin() + static_cast<int64_t>(source), bytes, wanted.begin() + static_cast<int64_t>(place));
  }
  make_copies(parts, from, to);
  CHECK(to == wanted);
}

TEST_CASE("words are as long as both places and the size allow") {
  if (const auto why = no_device()) return skip(*why);
  alignas(64) std::byte from[256], to[256];
  const auto word = [&](size_t source, size_t place, size_t bytes) {
    const CopyPart part{from + source, to + place, bytes};
    std::span<const CopyPart> parts(&part, 1);
    return take_copies(parts).parts[0].word;
  };
  CHECK(word(0, 0, 64) == 16);
  CHECK(word(0, 8, 64) == 8);
  CHECK(word(4, 0, 64) == 4);
  CHECK(word(0, 0, 6) == 2);
  CHECK(word(0, 1, 64) == 1);
}

TEST_CASE("a launch carries as many parts as it has room for") {
  if (const auto why = no_device()) return skip(*why);
  std::byte from[1], to[1];
  const std::vector<CopyPart> parts(2 * CopyArgs::most_parts + 1, {from, to, 1});
  std::span<const CopyPart> left = parts;
  CHECK(take_copies(left).blocks() == CopyArgs::most_parts);
  CHECK(take_copies(left).blocks() == CopyArgs::most_parts);
  CHECK(take_copies(left).blocks() == 1);
  CHECK(left.empty());
}
