#include "io/read/uring_ring.h"

#include <fcntl.h>
#include <unistd.h>

#include "backend_rig.h"
#include "support/catch.h"
#include "support/skip.h"

using namespace feedline::io;
using namespace feedline::io::test;
using feedline::test::TempDir;

TEST_CASE("memory is registered in pieces, and a read may lie across a cut") {
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused");
  const TempDir dir;
  const int file = open(write_files(dir, {100'000})[0].uri.c_str(), O_RDONLY | O_CLOEXEC);
  const Slots memory(1, 64 << 10);
  constexpr size_t piece = 16 << 10;
  UringRing ring(4);
  REQUIRE(ring.register_memory(memory.all(), piece) == 0);
  for (const size_t at : {size_t{0}, piece - 5000, piece, 4 * piece - 10'000}) {
    REQUIRE(ring.prepare_read(file, {memory[0] + at, 4096, 10'000}, at));
    REQUIRE(ring.enter() == 0);
    size_t results = 0;
    ring.reap([&](uint64_t token, int result) {
      CHECK(token == at);
      CHECK(result == 10'000);
      results++;
    });
    REQUIRE(results == 1);
    CHECK(is_exact({0, 4096, 10'000}, memory[0] + at));
  }
  close(file);
}

TEST_CASE("a full queue refuses a read and can list what it holds") {
  if (!io_uring_allowed()) return feedline::test::skip("io_uring is refused");
  const TempDir dir;
  const int file = open(write_files(dir, {100'000})[0].uri.c_str(), O_RDONLY | O_CLOEXEC);
  const Slots memory(1, 64 << 10);
  UringRing ring(4);
  for (uint64_t token = 0; token < 4; token++) REQUIRE(ring.prepare_read(file, {memory[0], 0, 100}, token));
  CHECK_FALSE(ring.prepare_read(file, {memory[0], 0, 100}, 4));
  CHECK_FALSE(ring.prepare_cancel(0, 5));
  std::vector<uint64_t> held;
  ring.for_each_not_taken([&](uint64_t token) { held.push_back(token); });
  CHECK(held == std::vector<uint64_t>{0, 1, 2, 3});
  size_t results = 0;
  while (results < 4) {
    REQUIRE(ring.enter() == 0);
    results += ring.reap([](uint64_t, int result) { CHECK(result == 100); });
  }
  held.clear();
  ring.for_each_not_taken([&](uint64_t token) { held.push_back(token); });
  CHECK(held.empty());
  close(file);
}
