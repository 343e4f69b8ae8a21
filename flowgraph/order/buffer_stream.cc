#include "flowgraph/order/buffer_stream.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/draws.h"

namespace feedline::flow {

BufferStream::BufferStream(const Order& order, Wide first_pass, uint64_t sample) : order_(&order) {
  begin_pass(first_pass + sample / order.samples(), sample % order.samples());
}

void BufferStream::begin_pass(Wide pass, uint64_t position) {
  pass_ = pass;
  key_ = order_->seed_of_pass(pass);
  open_.assign(order_->blocks().size(), none);
  expired_.assign(order_->blocks().size(), false);
  expiring_.clear();
  restore(position);
}

// Returns the place of the buffer that draw number `position` of the pass takes. Only `filled` places hold a sample
// then: the buffer is full until the sequence is used up, and loses one place with each draw after that.
uint64_t BufferStream::draw(uint64_t position) const noexcept {
  const uint64_t filled = std::min(order_->buffer(), order_->samples() - position);
  return (mix64(key_ ^ mix64(position)) >> 32) * filled >> 32;
}

void BufferStream::restore(uint64_t position) {
  const uint64_t size = std::min(order_->buffer(), order_->samples());
  // While the buffer is full, the place that is drawn at position q is given sample number size + q of the sequence. So
  // the buffer's contents before draw `full_until` can be computed directly, and only the draws from there on are
  // repeated.
  const uint64_t full_until = std::min(position, order_->samples() - size);
  buffer_.assign(size, Sample{});
  if (full_until == 0) {  // place p holds sample p of the sequence
    begin_sequence(0);
    for (Sample& place : buffer_) place = *next_of_sequence();
  } else {
    fill_in_as_at(full_until);
  }
  position_ = full_until;
  while (position_ < position) pop();
}

void BufferStream::begin_sequence(uint64_t sample) {
  sequence_.emplace(order_->sequence(pass_, sample));
  run_ = {};
  next_ = sample;
}

// Sets the buffer to its contents before the draw at `position`, up to which it has been full. First each place is
// given the number of its sample in the sequence, and then the sample itself. A number and a sample both take 8 bytes,
// so no second array is needed for the numbers. A place that no draw has taken yet still holds the sample that it began
// with.
void BufferStream::fill_in_as_at(uint64_t position) {
  const uint64_t size = buffer_.size();
  const auto number_at = [&](uint64_t place) { return std::bit_cast<uint64_t>(buffer_[place]); };
  std::fill(buffer_.begin(), buffer_.end(), std::bit_cast<Sample>(none));
  uint64_t found = 0;
  for (uint64_t q = position; q > 0 && found < size; q--) {
    Sample& place = buffer_[draw(q - 1)];
    if (std::bit_cast<uint64_t>(place) != none) continue;
    place = std::bit_cast<Sample>(size + q - 1);
    found++;
  }
  std::vector<uint32_t> places(size);
  for (uint32_t place = 0; place < size; place++) {
    places[place] = place;
    if (number_at(place) == none) buffer_[place] = std::bit_cast<Sample>(uint64_t{place});
  }
  std::sort(places.begin(), places.end(), [&](uint32_t a, uint32_t b) { return number_at(a) < number_at(b); });
  begin_sequence(number_at(places.front()));
  for (const uint32_t place : places) {
    const uint64_t number = number_at(place);
    while (next_ <= number) buffer_[place] = *next_of_sequence();
  }
}

std::optional<BufferStream::Sample> BufferStream::next_of_sequence() {
  if (run_.count == 0) run_ = sequence_->next(std::numeric_limits<uint64_t>::max());
  if (run_.count == 0) return std::nullopt;
  const uint32_t number = order_->block_at(run_.file, run_.first);
  const Block& block = order_->blocks()[number];
  const Sample sample{number, static_cast<uint32_t>(run_.first - block.first)};
  run_.first++;
  run_.count--;
  next_++;
  // Sample number n enters the buffer with draw n - B. The first B samples are in the buffer before the first draw.
  // Their blocks expire as if these samples, too, had entered the buffer one by one, each with a draw. Otherwise all of
  // these blocks would be open until draw buffer_age(), in addition to the blocks of the B samples that have come
  // since.
  if (sample.number + 1 == block.rows) expiring_.push_back({number, next_ + order_->buffer_age() - order_->buffer()});
  return sample;
}

BufferStream::Sample BufferStream::pop() {
  Sample& place = buffer_[draw(position_)];
  const Sample sample = place;
  if (const auto next = next_of_sequence()) {
    place = *next;
  } else {
    place = buffer_.back();
    buffer_.pop_back();
  }
  position_++;
  return sample;
}

TicketRows BufferStream::pick(const Sample& sample, TakeResult& to) {
  if (!picks_ || picks_->samples == order_->picks()) {
    picks_ = {.ticket = to.tickets++, .opened = to.opened ? to.opened->size() : 0};
    to.step.finished.push_back(picks_->ticket);
    if (to.opened) to.opened->emplace_back().scattered = true;
  }
  const Block& block = order_->blocks()[sample.block];
  const uint64_t number = block.first + sample.number;
  if (to.opened) order_->add_samples((*to.opened)[picks_->opened], block.file, number, 1);
  const uint32_t frames = order_->rows_of(block.file, number, number).count, row = picks_->rows;
  picks_->samples++;
  picks_->rows += (frames - 1) * static_cast<uint32_t>(order_->stride()) + 1;
  return {picks_->ticket, row, frames, 0};
}

TicketRows BufferStream::row_of(const Sample& sample, TakeResult& to) {
  if (expired_[sample.block]) return pick(sample, to);
  uint64_t& ticket = open_[sample.block];
  const Block& block = order_->blocks()[sample.block];
  if (ticket == none) {
    ticket = to.tickets++;
    if (to.opened) order_->add_samples(to.opened->emplace_back(), block.file, block.first, block.rows);
  }
  const Order::SampleRows rows = order_->rows_of(block.file, block.first, block.first + sample.number);
  return {ticket, rows.first, rows.count, 0};
}

void BufferStream::expire(Step& step) {
  for (; !expiring_.empty() && expiring_.front().at <= position_; expiring_.pop_front()) {
    const uint32_t block = expiring_.front().block;
    expired_[block] = true;
    if (open_[block] != none) step.finished.push_back(open_[block]);
    open_[block] = none;
  }
}

void BufferStream::take(int64_t count, Rows wanted, int64_t at, TakeResult& to) {
  expire(to.step);  // in the first call, marks the blocks that had expired before the stream's first draw
  for (int64_t row = 0; row < count; row++) {
    if (position_ == order_->samples()) {
      close(to.step);
      begin_pass(pass_ + 1, 0);
    }
    const Sample sample = pop();
    if (row < wanted.first || row >= wanted.last) continue;
    TicketRows rows = row_of(sample, to);
    rows.at = at + row;
    if (to.with_rows) add_rows(*order_, rows, to.step.rows);
  }
  picks_.reset();
  expire(to.step);
}

void BufferStream::close(Step& step) {
  for (uint64_t& ticket : open_) {
    if (ticket != none) step.finished.push_back(ticket);
    ticket = none;
  }
}

}  // namespace feedline::flow
