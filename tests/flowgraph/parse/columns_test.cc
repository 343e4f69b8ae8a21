#include "flowgraph/parse/columns.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "support/catch.h"

using namespace feedline::flow;

TEST_CASE("an arena gives what it has, and no byte more") {
  alignas(16) std::array<std::byte, 32> memory{};
  const auto arena_of = [&](size_t bytes) { return Arena(std::span(memory).first(bytes)); };
  Arena whole = arena_of(16);
  CHECK(whole.left() == 16);
  CHECK(static_cast<void*>(whole.take<uint64_t>(2)) == memory.data());
  CHECK(whole.left() == 0);
  CHECK_NOTHROW(whole.take<uint64_t>(0));  // there is room for nothing
  CHECK_THROWS_AS(whole.take<uint8_t>(1), std::length_error);
  CHECK_THROWS_AS(arena_of(16).take<uint64_t>(3), std::length_error);
  CHECK_THROWS_AS(arena_of(15).take<uint64_t>(2), std::length_error);
  CHECK_THROWS_AS(arena_of(16).take<uint64_t>(SIZE_MAX), std::length_error);
  // What is aligned may begin beyond the end.
  for (size_t bytes = 9; bytes < 16; bytes++) {
    CAPTURE(bytes);
    Arena cut = arena_of(bytes);
    CHECK_NOTHROW(cut.take<uint8_t>(bytes));
    CHECK_THROWS_AS(cut.take<uint64_t>(0), std::length_error);
    CHECK_THROWS_AS(cut.take<uint64_t>(1), std::length_error);
  }
}

TEST_CASE("an arena takes back what was taken last") {
  alignas(16) std::array<std::byte, 16> memory{};
  Arena arena{std::span<std::byte>(memory)};
  auto* const bytes = arena.take<std::byte>(16);
  arena.trim(bytes + 5);
  CHECK(arena.left() == 11);
  CHECK(arena.take<std::byte>(11) == bytes + 5);
  CHECK_THROWS_AS(arena.take<std::byte>(1), std::length_error);
}
