#include "flowgraph/order/window_stream.h"

#include <algorithm>

namespace feedline::flow {

WindowStream::WindowStream(const DataSet& data, const Order& order, Wide first_pass, uint64_t sample)
    : data_(&data), order_(&order), windows_(order.windows()), sequence_(order, first_pass, sample) {}

const WindowStream::OpenBlock& WindowStream::open(uint32_t number, uint64_t from, TakeResult& to) {
  for (const OpenBlock& open : open_)
    if (open.block == number) return open;
  const Block& block = order_->blocks()[number];
  const uint64_t file_start = windows_->file_starts()[block.file], begin = file_start + block.first;
  const uint64_t first = std::max(begin, from), end = begin + block.rows;
  open_.push_back({number, end, to.tickets++, first});
  if (to.opened) to.opened->emplace_back().add(*data_, block.file, first - file_start, end - first);
  return open_.back();
}

void WindowStream::finish(uint64_t frame, uint32_t file, Step& step) {
  std::erase_if(open_, [&](const OpenBlock& open) {
    const bool other = order_->interleave().on() && order_->blocks()[open.block].file != file;
    if (other || open.end > frame) return false;
    step.finished.push_back(open.ticket);
    return true;
  });
}

void WindowStream::add_rows(const Windows::Window& window, uint32_t file, int64_t at, TakeResult& to) {
  const std::vector<uint64_t>& starts = windows_->file_starts();
  const auto stride = static_cast<uint64_t>(windows_->spec().stride);
  uint64_t frame = window.first;
  for (int64_t f = 0; f < window.frames;) {
    while (frame >= starts[file + 1]) file++;
    const OpenBlock& ticket = open(order_->block_at(file, frame - starts[file]), window.first, to);
    const int64_t n = stride > 1 ? 1 : std::min(window.frames - f, static_cast<int64_t>(ticket.end - frame));
    if (to.with_rows)
      to.step.rows.push_back(
          {ticket.ticket, static_cast<uint32_t>(frame - ticket.first), static_cast<uint32_t>(n), at + f});
    f += n;
    frame += static_cast<uint64_t>(n) * stride;
  }
}

void WindowStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  for (int64_t done = 0; done < count;) {
    const Wide pass = sequence_.pass();
    const Run run = sequence_.next(static_cast<uint64_t>(count - done));
    if (sequence_.pass() != pass) close(to.step);
    const uint64_t first = order_->file_starts()[run.file] + run.first;
    for (uint64_t number = first; number < first + run.count; number++, done++) {
      const Windows::Window window = windows_->at(number);
      finish(window.first, run.file, to.step);
      if (done >= wanted.first && done < wanted.last)
        add_rows(window, run.file, (at + done) * windows_->spec().size, to);
    }
    if (order_->interleave().on() && first + run.count == order_->file_starts()[run.file + 1])
      finish(windows_->file_starts()[run.file + 1], run.file, to.step);
  }
}

void WindowStream::close(Step& step) {
  for (const OpenBlock& open : open_) step.finished.push_back(open.ticket);
  open_.clear();
}

}  // namespace feedline::flow
