// One lane of BLOCK.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/sample_stream.h"

namespace feedline::flow {

/// Each block is a ticket; it is open for as many rounds as it has segments.
class BlockStream final : public SampleStream {
 public:
  /// From sample `sample` of the lane on; its passes are numbered from `first_pass` on.
  BlockStream(const Order& order, uint32_t lane, uint64_t first_pass, uint64_t sample);

  void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) override;
  void close(Step& step) override;

 private:
  struct Open {
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
  void enter_pass(uint64_t phase);
  void enter_round(TakeResult& to);
  void open_next(TakeResult& to);
  void leave_round(Step& step);

  const Order* order_;
  const uint32_t number_;
  const uint64_t first_pass_;
  std::shared_ptr<const Pass> pass_;
  uint64_t phase_ = 0;
  uint32_t round_ = 0;
  uint32_t next_block_ = 0;   // of the lane: not yet opened
  uint64_t taken_ = 0;        // samples of the lane in this pass
  std::deque<Open> open_;     // of consecutive blocks, up to the newest
  bool entered_ = false;      // the round's blocks are open and its rows drawn
  std::vector<Drawn> drawn_;  // the samples of the round; where one block is a round, they are the block's
};

}  // namespace feedline::flow
