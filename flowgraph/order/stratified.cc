#include "flowgraph/order/stratified.h"

#include <algorithm>

#include "base/draws.h"

namespace feedline::flow {

Stratified::Stratified(std::vector<uint64_t> amounts, uint64_t key, uint64_t position)
    : amounts_(std::move(amounts)), drawn_(amounts_.size()) {
  const auto numbers = static_cast<uint32_t>(amounts_.size());
  for (uint32_t number = 0; number < numbers; number++) {
    keys_.push_back(key_of({key, number}));
    lengths_.push_back(~Wide{0} / std::max<uint64_t>(1, amounts_[number]));
  }
  const auto all_before = [&](uint64_t time) {
    uint64_t sum = 0;
    for (uint32_t number = 0; number < numbers; number++) sum += drawn_before(number, time);
    return sum;
  };
  uint64_t now = 0;  // the last moment before which at most `position` numbers have come
  for (uint64_t bit = uint64_t{1} << 63; bit > 0 && position > 0; bit >>= 1)
    if (all_before(now | bit) <= position) now |= bit;
  uint64_t sum = 0;
  for (uint32_t number = 0; number < numbers; number++) {
    sum += drawn_[number] = drawn_before(number, now);
    if (drawn_[number] < amounts_[number]) next_draws_.push_back({time(number, drawn_[number]), number});
  }
  std::make_heap(next_draws_.begin(), next_draws_.end());
  // Fewer than `position` numbers may have come before `now`, because several numbers may come at the same moment.
  while (sum++ < position) next();
}

uint64_t Stratified::begin(uint32_t number, uint64_t part) const noexcept {
  return part * static_cast<uint64_t>(lengths_[number] >> 64) +
         high_product(part, static_cast<uint64_t>(lengths_[number]));
}

uint64_t Stratified::time(uint32_t number, uint64_t part) const noexcept {
  const auto length = static_cast<uint64_t>(lengths_[number] >> 64);
  return begin(number, part) + high_product(Draws(keys_[number] + part).next(), length);
}

uint64_t Stratified::drawn_before(uint32_t number, uint64_t time) const noexcept {
  const uint64_t amount = amounts_[number];
  uint64_t part = high_product(time, amount);  // because of rounding, this may be off by one
  if (begin(number, part) > time) part--;
  if (part < amount && begin(number, part + 1) <= time) part++;
  return part + (part < amount && this->time(number, part) < time ? 1 : 0);
}

uint32_t Stratified::next() {
  std::pop_heap(next_draws_.begin(), next_draws_.end());
  const uint32_t number = next_draws_.back().number;
  if (++drawn_[number] < amounts_[number]) {
    next_draws_.back().time = time(number, drawn_[number]);
    std::push_heap(next_draws_.begin(), next_draws_.end());
  } else {
    next_draws_.pop_back();
  }
  return number;
}

}  // namespace feedline::flow
