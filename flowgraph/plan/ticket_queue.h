// The tickets of a feed in the order in which they are read.
#pragma once

#include <deque>
#include <vector>

#include "flowgraph/plan/schedule.h"
#include "flowgraph/plan/walk.h"

namespace feedline::flow {

/// Not thread-safe.
class TicketQueue {
 public:
  /// Keeps a reference to `schedule`.
  TicketQueue(const Schedule& schedule, const Walk::Start& start)
      : schedule_(schedule), walk_(schedule, start, false) {}

  /// Returns the next ticket, which the caller may move from and then must pop(). If an error ends the data
  /// (DataSet::raised), returns null after the last ticket before that error. Without such an error tickets never end.
  Ticket* front() {
    while (tickets_.empty() && !ended_) {
      opened_.clear();
      walk_.next(step_, &opened_);
      ended_ = step_.ends_epoch && !schedule_.data.raised.empty();
      for (Ticket& ticket : opened_) tickets_.push_back(std::move(ticket));
    }
    return tickets_.empty() ? nullptr : &tickets_.front();
  }
  void pop() { tickets_.pop_front(); }

 private:
  const Schedule& schedule_;
  Walk walk_;
  Step step_;
  std::vector<Ticket> opened_;
  std::deque<Ticket> tickets_;
  bool ended_ = false;
};

}  // namespace feedline::flow
