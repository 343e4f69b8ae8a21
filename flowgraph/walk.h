// Goes through the steps of a feed: which tickets are read, and which of their rows are the rows of which step. Two
// walks from the same place see the same: [read] follows the tickets of one, [assemble] the rows of another.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "flowgraph/order.h"
#include "flowgraph/steps.h"

namespace feedline::flow {

/// Rows of a ticket, one after another, and the number in the step of the first.
struct TicketRows {
  uint64_t ticket = 0;
  uint32_t first = 0, count = 0;
  int64_t at = 0;
};

struct Step {
  bool ends_epoch = false;  // instead of a step: one empty ticket, the last one, says so
  Steps::Kind kind = Steps::Kind::full;
  uint64_t epoch = 0;
  int64_t step = 0;
  std::vector<TicketRows> rows;    // of this rank, ascending by `at`
  uint64_t tickets = 0;            // all with smaller numbers are needed for it
  std::vector<uint64_t> finished;  // of these nothing is used behind this step
};

/// One lane of a shuffled order, from a place in an epoch on.
class LaneWalk {
 public:
  LaneWalk(const Order& order, uint32_t lane, uint64_t first_pass, uint64_t sample, bool with_rows);

  /// Takes the next `count` samples, the rows from `at` on of the step, of which those numbered `wanted` go into it.
  /// Blocks come with a ticket each, numbered from `tickets` on; what they are is added to `opened`, if given.
  void take(int64_t count, Rows wanted, int64_t at, uint64_t& tickets, std::vector<Pass::Part>* opened, Step& step);
  /// No more is taken.
  void close(Step& step);

 private:
  struct Open {
    Pass::Part part;
    uint64_t ticket = 0;
    Segments segments;
    std::vector<uint32_t> rows;  // in random order
  };
  struct Drawn {
    uint64_t ticket;
    uint32_t row;
  };
  const Lane& lane() const noexcept { return pass_->lanes[number_]; }
  uint64_t round_end(uint32_t round) const noexcept { return pass_->round_ends[lane().first_round + round]; }
  void enter_pass(uint64_t phase);
  void enter_round(uint64_t& tickets, std::vector<Pass::Part>* opened);
  void open_next(uint64_t& tickets, std::vector<Pass::Part>* opened);
  void leave_round(Step& step);

  const Order* order_;
  const uint32_t number_;
  const uint64_t first_pass_;
  const bool with_rows_;
  std::shared_ptr<const Pass> pass_;
  uint64_t phase_ = 0;
  uint32_t round_ = 0;
  uint32_t next_block_ = 0;   // of the lane: not yet opened
  uint64_t taken_ = 0;        // samples of the lane in this pass
  std::deque<Open> open_;     // of consecutive blocks, up to the newest
  bool entered_ = false;      // the round's blocks are open and its rows drawn
  std::vector<Drawn> drawn_;  // the rows of the round
};

class Walk {
 public:
  /// Steps of fewer bytes are not picked out of a block row by row.
  static constexpr uint64_t fine_step_bytes = 128 << 10;

  struct Start {
    uint64_t epoch = 0;
    int64_t step = 0;
  };
  /// repeat: passes of an epoch, -1 without end. with_rows: Step::rows are filled in.
  Walk(const DataSet& data, const Order& order, const Steps& steps, int64_t repeat, Start start, bool with_rows);

  /// Tickets that the step opens are appended to `opened`, if given.
  void next(Step& step, std::vector<Ticket>* opened);

 private:
  void begin_epoch();
  void take_in_file_order(Step& step, std::vector<Ticket>* opened);
  void take_of_lanes(Step& step, std::vector<Ticket>* opened);
  void open_block_of(uint64_t sample, Step& step, std::vector<Ticket>* opened);
  void fill_in(Ticket& ticket) const;

  const DataSet* data_;
  const Order* order_;
  const Steps* steps_;
  const int64_t repeat_;
  const bool with_rows_;
  uint64_t epoch_;
  int64_t step_;
  uint64_t tickets_ = 0;

  // Shuffled.
  std::vector<std::optional<LaneWalk>> lanes_;  // those that this rank takes from
  std::vector<Pass::Part> parts_;
  // In file order.
  struct Current {
    size_t block = 0;
    uint64_t first = 0, end = 0;  // samples of the epoch
    uint64_t ticket = 0;
    uint32_t next_row = 0;  // of the ticket
  };
  bool whole_blocks_ = false;  // tickets hold all rows of their blocks, not only this rank's
  std::optional<Current> current_;
  uint64_t started_at_ = 0;  // sample of the epoch: rows in front of it are not wanted
};

}  // namespace feedline::flow
