// NONE, shared by ranks whose steps are long: each rank reads its rows of a block, not the block.
#pragma once

#include <cstdint>
#include <optional>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// Each block is a ticket, with the rows that this rank is to have in the steps that the block reaches into. A block of
/// so small records that its steps are short (Order::picks_rows) is read whole, from the first of these rows to the
/// last.
class PickedStream final : public SampleStream {
 public:
  PickedStream(const Order& order, const Steps& steps, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct Current {
    size_t block = 0;
    uint64_t first = 0, end = 0;  // samples of the epoch
    uint64_t first_wanted = 0;    // sample of the epoch: row 0 of the ticket
    uint64_t ticket = 0;
    uint32_t next_row = 0;  // of the ticket
    bool whole = false;     // the rows between those that are wanted are rows of the ticket, too
  };
  void open_block_of(uint64_t sample, TakeResult& to);
  void fill_in(Ticket& ticket) const;

  const Order* order_;
  const Steps* steps_;
  uint64_t next_;
  std::optional<Current> current_;
};

}  // namespace feedline::flow
