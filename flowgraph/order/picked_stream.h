// The stream of shuffle mode NONE if several ranks share the data and steps are long. Each rank reads only its own rows
// of a block, and not the whole block.
#pragma once

#include <cstdint>
#include <optional>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// Each block is read as one ticket. The ticket holds the rows that this rank needs in all steps that the block reaches
/// into. If a step takes too few bytes of the block (Order::picks_rows()), the ticket also holds the rows between the
/// rank's rows: everything from the first of the rank's rows to the last.
class PickedStream final : public SampleStream {
 public:
  PickedStream(const Order& order, const Steps& steps, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct Current {
    size_t block = 0;
    uint64_t first = 0, end = 0;  // the block's samples are [first, end), numbered like next_
    uint64_t first_wanted = 0;    // the sample that is row 0 of the ticket, numbered like next_
    uint64_t ticket = 0;
    uint32_t next_row = 0;  // the ticket's row that is taken next
    bool whole = false;     // whether the ticket also holds the rows between the rows that are wanted
  };
  void open_block_of(uint64_t sample, TakeResult& to);
  void fill_in(Ticket& ticket) const;

  const Order* order_;
  const Steps* steps_;
  uint64_t next_;                   // the next sample, counted from the beginning of Steps::first_pass()
  std::optional<Current> current_;  // the block opened last
};

}  // namespace feedline::flow
