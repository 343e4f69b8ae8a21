#include "flowgraph/batch/arriving_rows.h"

#include <algorithm>
#include <utility>

namespace feedline::flow {

void ArrivingRows::add(const Chunk& chunk) {
  // If the chunk ends with an error, one row is added after the chunk's rows. It stands for the error.
  const uint32_t rows = chunk.first_error ? chunk.rows() + 1 : chunk.ticket.rows;
  if (rows > 0) rows_.push_back({tickets_, 0, rows, 0});
  waiting_ += rows;
  tickets_++;
  if (chunk.first_error)
    end_ = End::of_data;
  else if (rows == 0)
    end_ = End::of_pass;
}

void ArrivingRows::take(int64_t count, Step& step) {
  for (int64_t at = 0; at < count;) {
    TicketRows& first = rows_.front();
    const auto n = static_cast<uint32_t>(std::min<int64_t>(first.count, count - at));
    step.rows.push_back({first.ticket, first.first, n, at});
    at += n;
    first.first += n;
    first.count -= n;
    if (first.count > 0) continue;
    step.finished.push_back(first.ticket);
    rows_.pop_front();
  }
  waiting_ -= count;
}

bool ArrivingRows::next(Step& step) {
  const int64_t full = steps_.rows(Steps::Kind::full);
  if (waiting_ < full && end_ == End::none) return false;
  step = {.epoch = epoch_, .step = step_, .rows = {}, .tickets = tickets_, .finished = {}};
  if (waiting_ == 0) {
    if (end_ == End::of_data) return false;
    step.ends_epoch = true;
    step.finished.push_back(tickets_ - 1);
    end_ = End::none;
    epoch_++;
    step_ = 0;
    last_ = std::exchange(count_, {});
    return true;
  }
  if (waiting_ < full && end_ == End::of_pass) {
    steps_.end_with(step_, waiting_);
    step.kind = steps_.kind(step_);
  }
  count_.steps += step.kind == Steps::Kind::dropped ? 0 : 1;
  count_.samples += std::min(waiting_, full);
  take(std::min(waiting_, full), step);
  step_++;
  return true;
}

}  // namespace feedline::flow
