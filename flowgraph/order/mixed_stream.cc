#include "flowgraph/order/mixed_stream.h"

#include <algorithm>

namespace feedline::flow {

MixedStream::MixedStream(const Mixture& mixture, uint32_t lane, uint64_t epoch, uint64_t sample, int64_t frames,
                         OpenStream open)
    : frames_(frames), open_(std::move(open)), draws_(mixture, lane, epoch, sample) {
  for (const uint64_t taken : draws_.taken()) sources_.emplace_back().begins_at = taken;
}

void MixedStream::draw(int64_t count, Rows wanted) {
  for (Source& source : sources_) {
    source.drawn = 0;
    source.wanted = {};
  }
  order_.clear();
  for (int64_t row = 0; row < count; row++) {
    order_.push_back(draws_.next());
    Source& source = sources_[order_.back()];
    source.drawn++;
    source.wanted.first += row < wanted.first ? 1 : 0;
    source.wanted.last += row < wanted.last ? 1 : 0;
  }
}

void MixedStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  draw(count, wanted);
  for (size_t s = 0; s < sources_.size(); s++) {
    Source& source = sources_[s];
    if (source.drawn == 0) continue;
    if (!source.stream) source.stream = open_(s, source.begins_at);
    source.taken.rows.clear();
    source.taken.finished.clear();
    TakeResult result{source.taken, to.tickets, to.opened, to.with_rows};
    source.stream->take(source.drawn, source.wanted, 0, result);
    to.step.finished.insert(to.step.finished.end(), source.taken.finished.begin(), source.taken.finished.end());
    source.run = source.used = 0;
    source.sample = source.wanted.first;
  }
  if (!to.with_rows) return;
  for (int64_t row = wanted.first; row < wanted.last; row++)
    add_sample(sources_[order_[static_cast<size_t>(row)]], at + row, to.step);
}

// Puts the source's next sample into the step. The sample's rows may be a part of a run, or parts of several runs. A
// window that is short has fewer rows than others.
void MixedStream::add_sample(Source& source, int64_t at, Step& step) const {
  const int64_t begin = source.sample++ * frames_, end = begin + frames_;
  while (source.run < source.taken.rows.size()) {
    const TicketRows& rows = source.taken.rows[source.run];
    const int64_t first = rows.at + source.used;
    if (first >= end) return;
    const auto count = static_cast<uint32_t>(std::min<int64_t>(rows.count - source.used, end - first));
    step.rows.push_back({rows.ticket, rows.first + source.used, count, at * frames_ + first - begin});
    source.used += count;
    if (source.used < rows.count) return;
    source.run++;
    source.used = 0;
  }
}

void MixedStream::close(Step& step) {
  for (Source& source : sources_)
    if (source.stream) source.stream->close(step);
}

}  // namespace feedline::flow
