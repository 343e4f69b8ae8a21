// The tickets of a feed, one after another.
#pragma once

#include <deque>
#include <vector>

#include "flowgraph/plan/plan.h"
#include "flowgraph/plan/walk.h"

namespace feedline::flow {

/// Used by one thread at a time.
class TicketQueue {
 public:
  /// Keeps a reference to `plan`.
  TicketQueue(const Plan& plan, const Walk::Start& start) : plan_(plan), walk_(plan, start, false) {}

  /// Returns the next ticket, to be moved from before pop(); null: the data has ended with its error.
  Ticket* front() {
    while (tickets_.empty() && !ended_) {
      opened_.clear();
      walk_.next(step_, &opened_);
      ended_ = step_.ends_epoch && !plan_.data.raised.empty();
      for (Ticket& ticket : opened_) tickets_.push_back(std::move(ticket));
    }
    return tickets_.empty() ? nullptr : &tickets_.front();
  }
  void pop() { tickets_.pop_front(); }

 private:
  const Plan& plan_;
  Walk walk_;
  Step step_;
  std::vector<Ticket> opened_;
  std::deque<Ticket> tickets_;
  bool ended_ = false;
};

}  // namespace feedline::flow
