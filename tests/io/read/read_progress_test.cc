#include "io/read/read_progress.h"

#include <random>
#include <vector>

#include "support/catch.h"

using namespace feedline::io;
using Step = ReadProgress::Step;

namespace {

std::vector<std::byte> buffer_for(uint64_t offset, uint64_t length) {
  return std::vector<std::byte>(Read::capacity_for(offset, length));
}

}  // namespace

TEST_CASE("calls cover the range with the alignment asked for and stay inside the buffer") {
  std::mt19937_64 random(1);
  size_t wrong = 0;
  for (uint32_t alignment : {1u, 512u, 4096u})
    for (int round = 0; round < 20'000; round++) {
      const uint64_t offset = random() % 20'000, length = 1 + random() % 20'000;
      // The file ends at the end of the range or anywhere after it.
      const uint64_t file_size = offset + length + (random() % 2 ? random() % 5000 : 0);
      auto buffer = buffer_for(offset, length);
      ReadProgress progress({0, offset, length, buffer.data(), nullptr}, alignment);
      uint64_t covered = offset / alignment * alignment;
      Step step = Step::again;
      for (int calls = 0; step == Step::again && calls < 1000; calls++) {
        const ReadCall call = progress.next();
        wrong += call.offset % alignment || call.length % alignment || call.length == 0;
        wrong += call.offset > covered;  // leaves a gap
        wrong += call.buffer != buffer.data() + (call.offset - offset / block_bytes * block_bytes);
        wrong += call.buffer + call.length > buffer.data() + buffer.size();
        // Linux transfers everything that was asked for, or fewer bytes: whole sectors, unless the file ends.
        const uint64_t there = std::min<uint64_t>(call.length, file_size - call.offset);
        uint64_t bytes = random() % 3 ? there : (1 + random() % there) / alignment * alignment;
        if (bytes == 0) bytes = std::min<uint64_t>(alignment, there);
        covered = std::max(covered, call.offset + bytes);
        step = progress.advance(bytes);
      }
      wrong += step != Step::done || covered < offset + length;
    }
  CHECK(wrong == 0);
}

TEST_CASE("a file that ends inside the range is found out by a call that brings nothing new") {
  for (uint32_t alignment : {1u, 512u, 4096u})
    for (uint64_t file_size = 0; file_size < 9000; file_size += 7) {
      auto buffer = buffer_for(1000, 8000);
      ReadProgress progress({0, 1000, 8000, buffer.data(), nullptr}, alignment);
      Step step = Step::again;
      int calls = 0;
      for (; step == Step::again; calls++) {
        const ReadCall call = progress.next();
        step = progress.advance(file_size > call.offset ? std::min<uint64_t>(call.length, file_size - call.offset) : 0);
      }
      REQUIRE(step == Step::ended);
      REQUIRE(calls <= 2);
    }
}

TEST_CASE("huge ranges are read in pieces") {
  ReadProgress progress({0, 0, uint64_t{5} << 30, nullptr, nullptr}, 4096);
  int calls = 0;
  do calls++;
  while (progress.advance(progress.next().length) == Step::again);
  CHECK(calls == 5);
}
