// A sequence of samples that is taken step by step: which tickets it opens, and which of their rows come when.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/steps.h"
#include "flowgraph/order/ticket.h"

namespace feedline::flow {

/// Rows of a ticket, one after another, and the number in the step of the first.
struct TicketRows {
  uint64_t ticket = 0;
  uint32_t first = 0, count = 0;
  int64_t at = 0;
};

/// Appends the rows of a sample: `sample.count` of them, the order's stride apart; `sample.at` numbers the sample.
inline void add_rows(const Order& order, const TicketRows& sample, std::vector<TicketRows>& rows) {
  const int64_t at = sample.at * order.frames();
  if (order.stride() == 1) return rows.push_back({sample.ticket, sample.first, sample.count, at});
  for (uint32_t frame = 0; frame < sample.count; frame++)
    rows.push_back({sample.ticket, sample.first + frame * static_cast<uint32_t>(order.stride()), 1, at + frame});
}

/// Appends the rows of `count` samples: sample(i) is the i-th.
template <typename Sample>
void add_samples(const Order& order, int64_t count, std::vector<TicketRows>& rows, const Sample& sample) {
  if (order.windows()) {
    for (int64_t i = 0; i < count; i++) add_rows(order, sample(i), rows);
    return;
  }
  const size_t before = rows.size();
  rows.resize(before + static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) rows[before + static_cast<size_t>(i)] = sample(i);
}

struct Step {
  bool ends_epoch = false;  // instead of a step: one empty ticket, the last one, says so
  Steps::Kind kind = Steps::Kind::full;
  uint64_t epoch = 0;
  int64_t step = 0;
  std::vector<TicketRows> rows;    // of this rank, ascending by `at`
  uint64_t tickets = 0;            // all with smaller numbers are needed for it
  std::vector<uint64_t> finished;  // of these nothing is used behind this step
};

/// Where what is taken goes.
struct TakeResult {
  Step& step;
  uint64_t& tickets;            // number of the next one
  std::vector<Ticket>* opened;  // null: nobody reads; else those that are opened are appended
  bool with_rows;               // Step::rows is filled in
};

/// It begins at a sample of an epoch that its constructor is told, and goes on through the passes. Two streams from the
/// same place open the same tickets, whatever a TakeResult asks for; one stream is always asked for the same.
class SampleStream {
 public:
  virtual ~SampleStream() = default;

  /// Takes the next `count` samples, the rows from `at` on of the step, of which those numbered `wanted` go into it.
  virtual void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) = 0;
  /// No more is taken.
  virtual void close(Step& step) = 0;
};

}  // namespace feedline::flow
