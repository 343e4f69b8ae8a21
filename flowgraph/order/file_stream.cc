#include "flowgraph/order/file_stream.h"

#include <algorithm>

namespace feedline::flow {

FileStream::FileStream(const Order& order, Wide first_pass, uint64_t sample)
    : order_(&order), sequence_(order, first_pass, sample) {}

FileStream::OpenBlock& FileStream::open(uint32_t number, uint64_t sample, TakeResult& to) {
  for (OpenBlock& open : open_)
    if (open.block == number) return open;
  const Block& block = order_->blocks()[number];
  open_.push_back({number, to.tickets++, sample});
  if (to.opened) order_->add_samples(to.opened->emplace_back(), block.file, sample, block.first + block.rows - sample);
  return open_.back();
}

void FileStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  for (int64_t done = 0; done < count;) {
    const Run run = sequence_.next(static_cast<uint64_t>(count - done));
    for (uint64_t sample = run.first; sample < run.first + run.count;) {
      const uint32_t number = order_->block_at(run.file, sample);
      const Block& block = order_->blocks()[number];
      const uint64_t end = std::min(run.first + run.count, block.first + block.rows);
      const auto n = static_cast<int64_t>(end - sample);
      const int64_t first = std::max(wanted.first, done), last = std::min(wanted.last, done + n);
      if (first < last) {
        const uint64_t from = sample + static_cast<uint64_t>(first - done);
        const OpenBlock& ticket = open(number, from, to);
        if (to.with_rows)
          to.step.rows.push_back({ticket.ticket, static_cast<uint32_t>(from - ticket.first),
                                  static_cast<uint32_t>(last - first), at + first});
      }
      if (end == block.first + block.rows)
        std::erase_if(open_, [&](const OpenBlock& open) {
          if (open.block == number) to.step.finished.push_back(open.ticket);
          return open.block == number;
        });
      done += n;
      sample = end;
    }
  }
}

void FileStream::close(Step& step) {
  for (const OpenBlock& open : open_) step.finished.push_back(open.ticket);
  open_.clear();
}

}  // namespace feedline::flow
