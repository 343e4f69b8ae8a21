// BLOCK: blocks in random order, a few of which are mixed at a time. order.h describes lanes, rounds and segments.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// Yields the samples of one lane of the shuffle mode BLOCK, round by round; order.h explains lanes, rounds and
/// segments. Each block (or the lane's part of it) is read as one Ticket. A round takes one segment of each open block.
/// So a block's ticket stays open for as many rounds as the block has segments.
class BlockStream final : public SampleStream {
 public:
  /// Begins at sample `sample` of the lane, counted from the beginning of pass `first_pass`.
  BlockStream(const Order& order, uint32_t lane, Wide first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct OpenBlock {
    uint64_t ticket = 0;
    Segments segments;
    std::vector<Order::SampleRows> samples;  // in random order
  };
  struct Drawn {
    uint64_t ticket;
    Order::SampleRows rows;
  };
  const Lane& lane() const noexcept { return pass_->lanes[number_]; }
  uint64_t round_end(uint32_t round) const noexcept { return pass_->round_ends[lane().first_round + round]; }
  uint64_t round_begin() const noexcept { return round_ == 0 ? 0 : round_end(round_ - 1); }
  Drawn drawn(size_t i) const noexcept;
  void enter_pass(uint64_t epoch_pass);
  void enter_round(TakeResult& to);
  void open_next(TakeResult& to);
  void leave_round(Step& step);

  const Order* order_;
  const uint32_t number_;  // the number of the lane
  const Wide first_pass_;
  std::shared_ptr<const Pass> pass_;
  uint64_t epoch_pass_ = 0;
  uint32_t round_ = 0;
  uint32_t next_block_ = 0;     // the first block of the lane that has not been opened yet
  uint64_t taken_ = 0;          // the number of samples of the lane that were taken in this pass
  std::deque<OpenBlock> open_;  // consecutive blocks of the lane; the last one is block next_block_ - 1
  bool entered_ = false;        // whether the blocks of round_ are open and its samples drawn
  // The samples of round_ in their order. Unused if Order::mixed_blocks() is 1, because a round is then one block.
  std::vector<Drawn> drawn_;
};

}  // namespace feedline::flow
