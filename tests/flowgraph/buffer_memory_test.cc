// Compares the memory that a BUFFER shuffle takes with what the plan says.
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "flowgraph/order/buffer_stream.h"
#include "flowgraph/order/order.h"
#include "support/catch.h"
#include "support/skip.h"

#ifdef __SANITIZE_ADDRESS__
// AddressSanitizer replaces operator new and operator delete, so this test cannot count allocations.
TEST_CASE("BUFFER takes no more memory than the plan has for it") {
  feedline::test::skip("AddressSanitizer has allocations of its own");
}
#else

namespace {

std::atomic<uint64_t> allocated{0}, most{0};

}  // namespace

void* operator new(size_t size) {
  void* const memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  const uint64_t now = allocated += malloc_usable_size(memory);
  if (now > most) most = now;
  return memory;
}
void operator delete(void* memory) noexcept {
  if (memory) allocated -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

using namespace feedline;
using namespace feedline::flow;

namespace {

// Returns the description of files of records of 100 bytes. The files do not exist.
DataSet data_of(size_t files, uint64_t records) {
  DataSet data;
  for (size_t f = 0; f < files; f++) {
    DataFile file{.id = {"made up", 0, 0}, .source = 0, .index = {}, .first_record = 0, .samples = {0, records}};
    constexpr uint64_t size = 116;
    std::vector<io::IndexEntry> entries;
    for (uint64_t at = 0; at < records * size; at += io::default_stride)
      entries.push_back({(at + size - 1) / size * size, (at + size - 1) / size});
    entries.push_back({records * size, records});
    file.index.records = records;
    file.index.smallest_record = file.index.largest_record = 100;
    file.index.end = file.index.stream_size = records * size;
    file.index.entries = std::move(entries);
    data.files.push_back(std::move(file));
  }
  return data;
}

// Returns the most memory, besides the order's, that two streams take while each goes from `sample` through one step.
uint64_t most_of_two(const Order& order, uint64_t sample) {
  const uint64_t before = allocated;
  most = before;
  const auto step = [&](BufferStream& stream) {
    Step taken;
    uint64_t tickets = 0;
    std::vector<Ticket> opened;
    TakeResult to{taken, tickets, &opened, true};
    stream.take(64, {0, 64}, 0, to);
  };
  BufferStream first(order, 0, sample);
  step(first);
  BufferStream second(order, 0, sample);
  step(second);
  return most - before;
}

}  // namespace

TEST_CASE("BUFFER takes no more memory than the plan has for it") {
  const DataSet data = data_of(3, 400'000);
  ShuffleSpec shuffle;
  shuffle.mode = ShuffleMode::buffer;
  shuffle.buffer_size = 1'000'000;
  const Order order(data, data.all_files(), shuffle, {}, {}, {1, 64, 0});
  for (const uint64_t sample : {0, 1, 150'000, 700'000, 1'199'000, 1'200'000}) {
    INFO(sample);
    const uint64_t taken = most_of_two(order, sample);
    CHECK(taken <= order.memory_bytes());
    CHECK(taken * 2 >= order.memory_bytes());  // the plan is at most twice as large as needed
  }
}

#endif
