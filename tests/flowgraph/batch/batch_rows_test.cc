// Which rows of chunks a batch refers to, where it has no sample of its own.
#include "flowgraph/batch/batch_rows.h"

#include <array>
#include <deque>
#include <memory>

#include "support/catch.h"

using namespace feedline;
using namespace feedline::flow;

TEST_CASE("filler refers to the row before it, however rows lie in chunks") {
  constexpr uint32_t samples = 4;
  Chunk in_one_chunk(0, {}, {});
  StepRows together;
  together.rows = {{.ticket = 0, .first = 20, .count = samples, .at = 0}};
  together.chunks = {&in_one_chunk};
  std::deque<Chunk> chunks;
  StepRows apart;
  for (uint32_t row = 0; row < samples; row++) {
    chunks.emplace_back(row, std::span<std::byte>(), std::span<std::byte>());
    apart.rows.push_back({.ticket = row, .first = 20 + row, .count = 1, .at = row});
    apart.chunks.push_back(&chunks.back());
  }
  for (const StepRows& step : {together, apart})
    for (int64_t first = 0; first <= samples; first++)
      for (int64_t last = first; last <= samples; last++) {
        INFO(step.rows.size() << " runs, samples " << first << " to " << last);
        // A batch is padded only at the end of its step; a replica without a sample gets one row.
        const int64_t count = last == samples ? 6 : std::max<int64_t>(1, last - first);
        BatchRows batch;
        batch.of_step = std::make_shared<const StepRows>(step);
        batch.wanted = {first, last};
        std::array<BatchRow, 6> rows;
        REQUIRE(std::ssize(rows_of_batch(batch, 0, count, rows.data())) == count);
        for (int64_t row = 0; row < count; row++) {
          const bool has_one = row < last - first;
          const int64_t wanted = has_one ? first + row : std::max<int64_t>(0, last - 1);
          CHECK(rows[static_cast<size_t>(row)].row == 20 + wanted);
          CHECK(rows[static_cast<size_t>(row)].filler == !has_one);
        }
      }
}
