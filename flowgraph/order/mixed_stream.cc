#include "flowgraph/order/mixed_stream.h"

#include <numeric>

namespace feedline::flow {

MixedStream::MixedStream(const Mixture& mixture, uint64_t epoch, uint64_t sample, int64_t frames, OpenStream open)
    : mixture_(mixture),
      lanes_(mixture.lanes().front().count),
      frames_(frames),
      open_(std::move(open)),
      draws_(mixture, epoch, sample),
      taken_(draws_.before()) {
  for (size_t source = 0; source < taken_.size(); source++)
    for (uint32_t lane = 0; lane < lanes_; lane++)
      sources_.emplace_back().begins_at = mixture_.lanes()[source].samples(lane, 0, taken_[source]);
}

// Draws the samples of a step, and puts them into the order of its rows.
void MixedStream::draw(int64_t count, Rows wanted) {
  drawn_.clear();
  rows_before_.assign(lanes_ + 1, 0);
  for (int64_t i = 0; i < count; i++) {
    const uint32_t source = draws_.next(), lane = mixture_.lanes()[source].lane_of(taken_[source]++);
    drawn_.push_back(source * lanes_ + lane);
    rows_before_[lane + 1]++;
  }
  std::partial_sum(rows_before_.begin(), rows_before_.end(), rows_before_.begin());
  order_.resize(drawn_.size());
  for (const uint32_t drawn : drawn_) order_[rows_before_[drawn % lanes_]++] = drawn;

  for (SourceLane& lane : sources_) {
    lane.drawn = 0;
    lane.wanted = {};
  }
  for (int64_t row = 0; row < count; row++) {
    SourceLane& lane = sources_[order_[static_cast<size_t>(row)]];
    lane.drawn++;
    lane.wanted.first += row < wanted.first ? 1 : 0;
    lane.wanted.last += row < wanted.last ? 1 : 0;
  }
}

void MixedStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  draw(count, wanted);
  for (size_t i = 0; i < sources_.size(); i++) {
    SourceLane& lane = sources_[i];
    if (lane.drawn == 0) continue;
    if (!lane.stream && lane.wanted.count() == 0) {
      lane.begins_at += static_cast<uint64_t>(lane.drawn);
      continue;
    }
    if (!lane.stream) lane.stream = open_(i / lanes_, static_cast<uint32_t>(i % lanes_), lane.begins_at);
    lane.taken.rows.clear();
    lane.taken.finished.clear();
    TakeResult result{lane.taken, to.tickets, to.opened, to.with_rows};
    lane.stream->take(lane.drawn, lane.wanted, 0, result);
    to.step.finished.insert(to.step.finished.end(), lane.taken.finished.begin(), lane.taken.finished.end());
    lane.run = lane.used = 0;
    lane.sample = lane.wanted.first;
  }
  if (!to.with_rows) return;
  for (int64_t row = wanted.first; row < wanted.last; row++)
    add_sample(sources_[order_[static_cast<size_t>(row)]], at + row, to.step);
}

// Puts the lane's next sample into the step. The sample's rows may be a part of a run, or parts of several runs. A
// short window has fewer than frames_ rows.
void MixedStream::add_sample(SourceLane& lane, int64_t at, Step& step) const {
  const int64_t begin = lane.sample++ * frames_, end = begin + frames_;
  while (lane.run < lane.taken.rows.size()) {
    const TicketRows& rows = lane.taken.rows[lane.run];
    const int64_t first = rows.at + lane.used;
    if (first >= end) return;
    const auto count = static_cast<uint32_t>(std::min<int64_t>(rows.count - lane.used, end - first));
    step.rows.push_back({rows.ticket, rows.first + lane.used, count, at * frames_ + first - begin});
    lane.used += count;
    if (lane.used < rows.count) return;
    lane.run++;
    lane.used = 0;
  }
}

void MixedStream::close(Step& step) {
  for (SourceLane& lane : sources_)
    if (lane.stream) lane.stream->close(step);
}

}  // namespace feedline::flow
