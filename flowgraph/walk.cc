#include "flowgraph/walk.h"

#include <algorithm>

#include "flowgraph/block_stream.h"
#include "flowgraph/buffer_stream.h"
#include "flowgraph/file_stream.h"
#include "flowgraph/global_stream.h"
#include "flowgraph/picked_stream.h"
#include "flowgraph/window_stream.h"

namespace feedline::flow {

Walk::Walk(const DataSet& data, const Order& order, const Steps& steps, Start start, bool with_rows)
    : data_(&data),
      order_(&order),
      steps_(&steps),
      with_rows_(with_rows),
      epoch_(start.epoch),
      step_(start.step),
      streams_(order.lanes()) {}

// Of the samples of the epoch that the current step begins with, or of all epochs where one goes on from another.
Stream& Walk::stream(uint32_t lane) {
  std::unique_ptr<Stream>& stream = streams_[lane];
  if (stream) return *stream;
  const uint64_t first_pass = steps_->first_pass(epoch_);
  const auto sample = static_cast<uint64_t>(steps_->step_of_streams(epoch_, step_) * steps_->lane_step());
  switch (order_->mode()) {
    case ShuffleMode::none:
      if (steps_->picks_rows())
        stream = std::make_unique<PickedStream>(*data_, *order_, *steps_, sample);
      else if (order_->windows())
        stream = std::make_unique<WindowStream>(*data_, *order_, first_pass, sample);
      else
        stream = std::make_unique<FileStream>(*data_, *order_, first_pass, sample);
      break;
    case ShuffleMode::block:
      stream = std::make_unique<BlockStream>(*order_, lane, first_pass, sample);
      break;
    case ShuffleMode::buffer:
      stream = std::make_unique<BufferStream>(*order_, first_pass, sample);
      break;
    case ShuffleMode::global:
      stream = std::make_unique<GlobalStream>(*order_, first_pass, sample);
      break;
  }
  return *stream;
}

void Walk::next(Step& step, std::vector<Ticket>* opened) {
  step.rows.clear();
  step.finished.clear();
  step.epoch = epoch_;
  step.step = step_;
  step.ends_epoch = !steps_->exists(step_);
  if (step.ends_epoch) {
    if (!steps_->epochs_go_on())
      for (auto& stream : streams_) {
        if (stream) stream->close(step);
        stream.reset();
      }
    step.finished.push_back(tickets_++);
    if (opened) opened->emplace_back();
    epoch_++;
    step_ = 0;
  } else {
    step.kind = steps_->kind(step_);
    const Rows& wanted = steps_->of_rank(step.kind);
    Taking taking{step, tickets_, opened, with_rows_};
    for (uint32_t lane = 0; lane < order_->lanes(); lane++) {
      const Steps::LaneRows rows = steps_->of_lane(step.kind, lane);
      const Rows of_lane{std::max(wanted.first, rows.first) - rows.first,
                         std::min(wanted.last, rows.first + rows.count) - rows.first};
      if (of_lane.first < of_lane.last) stream(lane).take(rows.count, of_lane, rows.first, taking);
    }
    step_++;
  }
  step.tickets = tickets_;
}

}  // namespace feedline::flow
