#include "flowgraph/plan/walk.h"

#include <algorithm>

#include "flowgraph/order/block_stream.h"
#include "flowgraph/order/buffer_stream.h"
#include "flowgraph/order/file_stream.h"
#include "flowgraph/order/global_stream.h"
#include "flowgraph/order/mixed_stream.h"
#include "flowgraph/order/picked_stream.h"
#include "flowgraph/order/window_stream.h"
#include "flowgraph/plan/schedule.h"

namespace feedline::flow {
namespace {

// Opens the stream of one lane of an order, at sample `sample` counted from the beginning of `first_pass`.
std::unique_ptr<SampleStream> open_stream(const Schedule& schedule, const Order& order, uint32_t lane, Wide first_pass,
                                          uint64_t sample) {
  switch (order.mode()) {
    case ShuffleMode::none:
      if (schedule.steps.picks_rows()) return std::make_unique<PickedStream>(order, schedule.steps, sample);
      if (order.windows()) return std::make_unique<WindowStream>(schedule.data, order, first_pass, sample);
      return std::make_unique<FileStream>(order, first_pass, sample);
    case ShuffleMode::block:
      return std::make_unique<BlockStream>(order, lane, first_pass, sample);
    case ShuffleMode::buffer:
      return std::make_unique<BufferStream>(order, first_pass, sample);
    case ShuffleMode::global:
      return std::make_unique<GlobalStream>(order, first_pass, sample);
  }
  return nullptr;
}

}  // namespace

Walk::Walk(const Schedule& schedule, Start start, bool with_rows)
    : schedule_(schedule),
      steps_(schedule.steps),
      with_rows_(with_rows),
      epoch_(start.epoch),
      step_(start.step),
      streams_(schedule.steps.lanes()) {}

// Returns the stream of a lane, and opens it at the current step if it is not open. A stream serves one epoch, or all
// epochs if each epoch continues where the epoch before it ended.
SampleStream& Walk::stream(uint32_t lane) {
  std::unique_ptr<SampleStream>& stream = streams_[lane];
  if (stream) return *stream;
  const auto open = [this, first_pass = steps_.first_pass(epoch_)](size_t source, uint32_t of_source, uint64_t sample) {
    return open_stream(schedule_, *schedule_.orders[source], of_source, first_pass, sample);
  };
  if (schedule_.mixture)
    stream = std::make_unique<MixedStream>(*schedule_.mixture, epoch_,
                                           static_cast<uint64_t>(step_ * steps_.lane_step()), schedule_.frames, open);
  else
    stream = open(0, lane, static_cast<uint64_t>(steps_.step_of_streams(epoch_, step_) * steps_.lane_step()));
  return *stream;
}

void Walk::next(Step& step, std::vector<Ticket>* opened) {
  step.rows.clear();
  step.finished.clear();
  step.epoch = epoch_;
  step.step = step_;
  step.ends_epoch = !steps_.exists(step_);
  if (step.ends_epoch) {
    if (!steps_.epochs_go_on())
      for (auto& stream : streams_) {
        if (stream) stream->close(step);
        stream.reset();
      }
    step.finished.push_back(tickets_++);
    if (opened) opened->emplace_back();
    epoch_++;
    step_ = 0;
  } else {
    step.kind = steps_.kind(step_);
    const Rows& wanted = steps_.of_rank(step.kind);
    TakeResult result{step, tickets_, opened, with_rows_};
    for (uint32_t lane = 0; lane < steps_.lanes(); lane++) {
      const Steps::LaneRows rows = steps_.of_lane(step.kind, lane);
      const Rows of_lane{std::max(wanted.first, rows.first) - rows.first,
                         std::min(wanted.last, rows.first + rows.count) - rows.first};
      if (of_lane.first < of_lane.last) stream(lane).take(rows.count, of_lane, rows.first, result);
    }
    step_++;
  }
  step.tickets = tickets_;
}

}  // namespace feedline::flow
