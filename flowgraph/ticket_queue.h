// The tickets of a feed, one after another.
#pragma once

#include <deque>
#include <vector>

#include "flowgraph/plan.h"
#include "flowgraph/walk.h"

namespace feedline::flow {

/// One thread at a time.
class TicketQueue {
 public:
  /// Keeps a reference to `plan`.
  TicketQueue(const Plan& plan, const Walk::Start& start) : plan_(plan), walk_(plan, start, false) {}

  /// The next ticket, to be moved from before pop(). Null: the data has ended with its error.
  Ticket* front() {
    while (tickets_.size() < 2 && !ended_) {
      opened_.clear();
      walk_.next(step_, &opened_);
      ended_ = step_.ends_epoch && !plan_.data.raised.empty();
      for (Ticket& ticket : opened_) {
        if (!tickets_.empty()) tickets_.back().ends_file = !continues(tickets_.back(), ticket);
        tickets_.push_back(std::move(ticket));
      }
    }
    return tickets_.empty() ? nullptr : &tickets_.front();
  }
  void pop() { tickets_.pop_front(); }

 private:
  static bool continues(const Ticket& before, const Ticket& behind) {
    if (before.extents.empty() || behind.extents.empty()) return false;
    const Extent &last = before.extents.back(), &first = behind.extents.front();
    return first.file == last.file && first.first_record > last.first_record;
  }

  const Plan& plan_;
  Walk walk_;
  Step step_;
  std::vector<Ticket> opened_;
  std::deque<Ticket> tickets_;  // each but the last knows whether it ends its file
  bool ended_ = false;
};

}  // namespace feedline::flow
