// A stream yields an order's samples step by step. It says which tickets (pieces of files that are read at a time) must
// be read, and which rows of these tickets go into which step. Each shuffle mode has its own implementation; order.h
// describes the modes.
#pragma once

#include <cstdint>
#include <vector>

#include "flowgraph/order/order.h"
#include "flowgraph/order/steps.h"
#include "flowgraph/order/ticket.h"

namespace feedline::flow {

/// The consecutive rows [first, first + count) of a ticket, which become the rows [at, at + count) of a step.
struct TicketRows {
  uint64_t ticket = 0;
  uint32_t first = 0, count = 0;
  int64_t at = 0;
};

/// Appends the rows of one sample to `rows`. The sample has `sample.count` rows of the ticket, which lie order.stride()
/// rows apart. Here `sample.at` is the number of the sample in the step, not of its first row.
inline void add_rows(const Order& order, const TicketRows& sample, std::vector<TicketRows>& rows) {
  const int64_t at = sample.at * order.frames();
  if (order.stride() == 1) return rows.push_back({sample.ticket, sample.first, sample.count, at});
  for (uint32_t frame = 0; frame < sample.count; frame++)
    rows.push_back({sample.ticket, sample.first + frame * static_cast<uint32_t>(order.stride()), 1, at + frame});
}

/// Appends the rows of `count` samples. sample(i) returns sample number i as add_rows() expects it.
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

/// One step of a feed as this rank sees it, or the end of an epoch.
struct Step {
  bool ends_epoch = false;  // this is not a step but the end of an epoch, for which one empty ticket is opened
  Steps::Kind kind = Steps::Kind::full;
  uint64_t epoch = 0;
  int64_t step = 0;
  std::vector<TicketRows> rows;    // the rows that this rank needs, ascending by `at`
  uint64_t tickets = 0;            // the step needs all tickets with numbers below this one
  std::vector<uint64_t> finished;  // the tickets that no later step uses
};

/// The places into which a SampleStream puts the rows and the tickets of the samples that it takes.
struct TakeResult {
  Step& step;
  uint64_t& tickets;            // the number of the next ticket; counts up as tickets are opened
  std::vector<Ticket>* opened;  // opened tickets are appended here; null if the caller does not read
  bool with_rows;               // whether Step::rows is filled in
};

/// The samples of one lane of an order. A stream begins at a sample that is given to its constructor, and continues
/// from pass to pass. Two streams that begin at the same sample open the same tickets, whichever fields of TakeResult
/// their callers want. In all calls to one stream `with_rows` must be the same, and `opened` must be null in all of
/// them or in none.
class SampleStream {
 public:
  virtual ~SampleStream() = default;

  /// Takes the next `count` samples of the lane, which have the numbers from `at` on in the step. Puts only the samples
  /// `wanted` into the step, which this rank needs; they are counted from the first of the `count` samples.
  virtual void take(int64_t count, Rows wanted, int64_t at, TakeResult& to) = 0;
  /// Ends the stream: the tickets that are still open are appended to step.finished.
  virtual void close(Step& step) = 0;
};

}  // namespace feedline::flow
